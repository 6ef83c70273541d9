// A GraphView that keeps the NumPy arrays behind it alive.
#pragma once
#include "bindings/arrays.hpp"
#include "kernels/graph_view.hpp"

namespace lowtide::bindings {

struct HeldGraphView {
  GraphView view;
  std::vector<nb::object> held;
};

}  // namespace lowtide::bindings
