"""The `torch.compile` backend "lowtide": plan AOTAutograd's joint graph, split it and compile both passes.

The plan of the joint graph decides which values are saved for backward and which are recomputed. The eager compiler
runs the planned ops one by one; it starts from the program as written, and falls back to PyTorch's own partition if
that needs less memory. Inductor (`fusion`) starts from PyTorch's own partition, because recomputing fused ops saves
time.

`rejoin` turns the two graphs of PyTorch's partitioner into one program, and `split` cuts a planned program at its
boundary.

A whole training step has no gradients for AOTAutograd. `step_passes` makes a joint graph of it: the forward pass
returns the loss, and the update belongs to the backward pass. The second pass is called right after the first.
"""
