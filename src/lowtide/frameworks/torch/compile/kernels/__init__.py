"""Plans of Inductor's kernels: which of them run again in the backward pass.

Inductor fuses ops, so most values of a program never reach memory. A plan of the program before fusion prices and saves
values that do not exist. Here a partition is first lowered to kernels (`recorded_pass`). The kernels of both passes
become one graph, with an op per kernel and a buffer per allocation (`KernelProgram`). The engine plans that graph like
any other. Then the plan is translated to FX nodes (`KernelChoice`): a recomputed kernel is a copy of the nodes between
the stored values that it reads and those that it writes (`recompute_kernels`). Inductor lowers the result once more,
which gives its exact peak.

- A recomputed kernel has nodes of its own. If it shared them with ops that Inductor computes within backward kernels,
  Inductor would store values that neither needs.
- A value that a forward kernel stores is marked as stored where it is recomputed. Inductor could otherwise store a
  larger value that is computed from it.
- A kernel that draws random numbers and computes more is two ops. The draw runs once.
- The first lowering keeps the order of the FX nodes. Inductor's own order delays weight gradients where another kernel
  sets the peak, and the plan does not reorder.
"""
