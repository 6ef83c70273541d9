#include "bindings/register.hpp"

NB_MODULE(_native, m) {
  m.doc() = "Kernels whose inner loop decides speed, over flat arrays.";
  lowtide::bindings::register_structure(m);
}
