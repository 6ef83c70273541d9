// One registration function a binding file; module.cpp calls them all.
#pragma once
#include "bindings/arrays.hpp"

namespace lowtide::bindings {

void register_structure(nb::module_& m);
void register_graph_view(nb::module_& m);
void register_evaluate(nb::module_& m);
void register_orders(nb::module_& m);
void register_pack(nb::module_& m);
void register_closure_cut(nb::module_& m);
void register_fit_search(nb::module_& m);
void register_refutation(nb::module_& m);
void register_safe_closure(nb::module_& m);
void register_tree_order(nb::module_& m);
void register_recompute(nb::module_& m);
void register_recompute_states(nb::module_& m);
void register_json_keys(nb::module_& m);

}  // namespace lowtide::bindings
