#include "bindings/register.hpp"

NB_MODULE(_native, m) {
  // PyTorch keeps compiled programs until the process ends, and with them plans and their native arrays.
  nanobind::set_leak_warnings(false);
  m.doc() = "Kernels whose inner loop decides speed, over flat arrays.";
  using namespace lowtide::bindings;
  register_structure(m);
  register_graph_view(m);
  register_evaluate(m);
  register_orders(m);
  register_pack(m);
  register_closure_cut(m);
  register_fit_search(m);
  register_refutation(m);
  register_safe_closure(m);
  register_tree_order(m);
  register_recompute(m);
  register_recompute_states(m);
  register_json_keys(m);
}
