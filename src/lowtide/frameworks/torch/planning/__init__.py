"""Plans of PyTorch programs: options, forms, one program, several ranks, and a budget shared by several graphs.

`plan_module` reads a graph of the compiler, plans it with `plan_program`, and writes it in plan order. A plan never
needs more memory than PyTorch alone, neither at the peak nor saved for backward: PyTorch's own partition is always a
candidate.

TorchDynamo may split a program into several graphs. Their budgets depend on the bytes that the others keep. So the
first step runs with plans for the whole budget. `SharedBudget` records the bytes that each call saves for backward.
Then each graph is planned once more, within its share.
"""
