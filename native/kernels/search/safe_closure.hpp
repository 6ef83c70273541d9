// What can run early for free, runs early; what can run late for free, runs late.
#pragma once
#include <vector>

#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Walks `order` forward and takes every ready op that fits and does not raise live bytes before what the order would
// run next; then walks the result backward and puts off every op in the same way. Neither raises the peak: live bytes
// are submodular over executed sets, so what such an op frees it frees at every later point too. O((n + e) log n).
std::vector<int32_t> close_order(const GraphView& graph, bool in_place, std::span<const int32_t> order);

}  // namespace lowtide
