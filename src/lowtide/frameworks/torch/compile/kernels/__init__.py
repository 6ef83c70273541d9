"""Plans of Inductor's kernels: which of them run again in the backward pass.

Inductor fuses ops, so most values of a program never reach memory. A plan before fusion would price and save values
that do not exist. So a partition is first lowered to kernels (`recorded_pass`). The kernels of both passes become one
graph, with an op per kernel and a buffer per allocation (`KernelProgram`), which the engine plans. Then the plan is
translated to FX nodes (`KernelChoice`): a recomputed kernel is a copy of the nodes between the stored values that it
reads and writes (`recompute_kernels`). Inductor lowers the result once more, which gives its exact peak.

- A recomputed kernel has nodes of its own. If ops within backward kernels shared them, Inductor would store values that
  neither needs.
- A value that a forward kernel stores is marked as stored where it is recomputed. Otherwise Inductor could store a
  larger value computed from it.
- A kernel with several results is one op per result, since a normalization can be recomputed from a stored sum without
  the operands of that sum. Each op counts the memory traffic that those before it in the kernel do not. In their first
  run they are one kernel, so a last op keeps all operands and results alive.
- Results that must not be recomputed, such as masks of dropout, are an op that runs once. So is a kernel that
  overwrites inputs of the program, and an op that reads an input before the program overwrites it.
- PyTorch's own kernels that draw, such as attention with dropout, are recomputed from the random state of the first run
  (`repeatable_draws`).
- A recomputed value has the strides that Inductor chose for it in the forward pass, as for convolutions.
- A kernel of the backward pass runs once. Its place is that of its own call; copies of operands run before.
- PyTorch's kernels copy offloaded values to the host and back, in plan order, which hides the copies behind other
  kernels. Waits come where the plan frees the value and where a kernel reads it again.
- The first lowering keeps the order of the FX nodes. Inductor's own order delays weight gradients where another kernel
  sets the peak, and the plan does not reorder.

If no plan of kernels fits the budget, the program is lowered and planned again with its largest products in chunks. A
call of chunks is one kernel. Plans that clearly miss the budget are compiled only if no other fits, the lowest first.
All lowerings of a program share one trace and one partition (`JointTrace`). If rounding is allowed, chunks are also
used to make a plan cheaper. Some programs get no plan of kernels; `explain` names the reason:

- training graphs without a budget: only the order of kernels is planned, and `explain` shows it;
- programs whose passes cannot be lowered together. Backward passes with hooks are left to PyTorch, with a warning;
- budgets that no plan of kernels meets, in any form: then the ops before fusion are planned.

Fusion keeps to the plan: Inductor asks `FusionGuard` before it fuses kernels, since it would otherwise keep more alive.
On a GPU, the guard separates the reductions of many recomputed layers, which would not fit into registers together.

Programs without a backward pass (`forward_program`) get an order of their kernels in one lowering: the better of
Inductor's own and the engine's. Nothing is recomputed there, so budgets below that order's peak are missed.

Percentages refer to Inductor with the program's `torch.utils.checkpoint` regions, and a plan never needs more.
"""
