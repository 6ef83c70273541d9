"""Plans of PyTorch programs: options, forms, one program, several ranks, and a budget shared by several graphs.

No plan needs more memory than PyTorch alone, at the peak or saved for backward: PyTorch's own partition is a candidate.

TorchDynamo may split a program into several graphs, whose budgets depend on one another. The first step runs with plans
for the whole budget. Then each graph is planned again within its share.
"""
