"""The planner: graphs, plans, analysis, search, packing, recomputation and offload, without frameworks or I/O."""
