"""Plans under Inductor: its partitioner, fusion within the budget, and the order of its kernels.

Ops are planned before fusion, so kernels' needs are known only after scheduling. If the kernels exceed the budget, the
graph is planned again for a smaller target, and compiled up to its schedule only.
"""
