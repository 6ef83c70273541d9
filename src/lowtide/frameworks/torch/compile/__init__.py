"""The `torch.compile` backend "lowtide": plan AOTAutograd's joint graph, split it and compile both passes.

The eager compiler starts from the program as written, or from PyTorch's own partition if that needs less memory.
Inductor (`fusion`) starts from PyTorch's partition, because recomputing fused ops saves time.

A whole training step has no gradients for AOTAutograd. `step_passes` makes a joint graph of it: the forward pass
returns the loss, and the update belongs to the backward pass.
"""
