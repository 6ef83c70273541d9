"""Plans of PyTorch programs: options, forms, one program, several ranks, and a budget shared by several graphs.

`plan_module` reads a graph of the compiler, plans it with `plan_program`, and writes it in the order of its plan. A
plan never needs more memory than PyTorch alone: PyTorch's own partition of the same program is always one of the
candidates, both for the peak and for the bytes saved for backward.

TorchDynamo may split one program into several graphs. A graph cannot be planned for the budget of the program before it
is known how many bytes the other graphs keep. So the first step runs with plans for the whole budget, `SharedBudget`
records what every call saves for backward, and the graphs are then planned once more, each within its share.
"""
