"""The `torch.compile` backend "lowtide": plan AOTAutograd's joint graph, split it and compile both passes.

The plan of the joint graph decides what runs in the forward pass, what is saved for backward, and what is recomputed.
The eager compiler runs the planned ops one by one; it starts from the program as written, and falls back to PyTorch's
own partition if that fits in less memory. Inductor (`fusion`) starts from PyTorch's own partition, because recomputing
ops that are fused saves time.

PyTorch's partitioner returns two graphs. `rejoin` turns them into one program again, and `split` cuts a planned program
at its boundary.

A whole training step has no gradients for AOTAutograd. `step_passes` makes a joint graph of it: the loss is the result
of the forward pass, and the update belongs to the backward pass. It is then planned and compiled like any other, with
the second pass called right after the first.
"""
