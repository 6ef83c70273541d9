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
- A kernel that draws random numbers, or overwrites inputs of the program, and computes more is two ops. The first
  runs once. So does an op that reads an input before the program overwrites it.
- A recomputed value has the strides that Inductor chose for it in the forward pass, as for convolutions.
- A kernel of the backward pass runs once. Its place is that of its own call: copies of operands run before.
- A value that the plan offloads is copied to the host and back by kernels of PyTorch, in the order of the plan, which
  hides them behind other kernels. Waits come where the plan frees the value and where a kernel reads it again.
- The first lowering keeps the order of the FX nodes. Inductor's own order delays weight gradients where another kernel
  sets the peak, and the plan does not reorder.

If a plan of kernels fits the budget, it is used. Otherwise the program is lowered and planned again with its largest
products in chunks. A call of chunks is one kernel. Where rounding is allowed, chunks are also used if they make a plan
cheaper. Some programs get no plan of kernels; `explain` names the reason:

- training graphs compiled without a budget: only the order of kernels is planned, and `explain` shows that;
- programs whose passes cannot be lowered together. Backward passes with hooks are left to PyTorch, with a warning;
- budgets that no plan of kernels meets, in no form: then the ops before fusion are planned.

Fusion keeps to the plan: Inductor asks `FusionGuard` before it fuses kernels, since it would otherwise keep more alive.
On a GPU, it also keeps the reductions of many recomputed layers apart, which would not fit into registers together.

Programs without a backward pass (`forward_program`) get an order of their kernels, in one lowering: the best of
Inductor's own and of the engine's. Nothing is recomputed there, so budgets below that order's peak are missed.

Regions of `torch.utils.checkpoint` are where the comparison starts: percentages refer to Inductor with these regions,
and a plan never needs more than that.
"""
