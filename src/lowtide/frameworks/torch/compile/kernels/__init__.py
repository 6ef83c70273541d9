"""Plans of Inductor's kernels: which of them run again in the backward pass.

Inductor fuses ops, so a plan before fusion would save values that never reach memory. A partition is first lowered to
kernels (`recorded_pass`). The kernels of both passes become one graph, with an op per kernel and a buffer per
allocation (`KernelProgram`), which the engine plans. The plan is translated to FX nodes (`KernelChoice`): a recomputed
kernel is a copy of the nodes between the stored values that it reads and writes (`recompute_kernels`). Inductor lowers
the result once more, which gives its exact peak.

- A recomputed kernel has nodes of its own. Inductor would store values that kernels share.
- A value that a forward kernel stores is marked as stored where it is recomputed. Otherwise Inductor could store a
  larger value computed from it.
- A kernel with several results is one op per result, since a normalization can be recomputed from a stored sum without
  its operands. A last op keeps all operands and results of the first run alive.
- Results that must not be recomputed, such as masks of dropout, are an op that runs once. So are kernels that overwrite
  inputs, and ops that read an input before it is overwritten.
- PyTorch's own kernels that draw are recomputed from the random state of the first run (`repeatable_draws`).
- PyTorch's kernels copy offloaded values in plan order, which hides the copies behind other kernels.
- The first lowering keeps the order of the FX nodes. Inductor's own order delays weight gradients where another kernel
  sets the peak, and the plan does not reorder.

If no plan of kernels fits the budget, the program is planned again with its largest products in chunks; if rounding is
allowed, also to make a plan cheaper. Some programs get no plan of kernels; `explain` names the reason:

- training graphs without a budget: only the order of kernels is planned;
- programs whose passes cannot be lowered together. Backward passes with hooks are left to PyTorch, with a warning;
- budgets that no plan of kernels meets, in any form: then the ops before fusion are planned.

Programs without a backward pass (`forward_program`) get only an order of their kernels.

Percentages refer to Inductor with the program's `torch.utils.checkpoint` regions, and a plan never needs more.
"""
