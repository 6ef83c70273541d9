"""The `torch.compile` backend "lowtide": AOTAutograd's joint graph, planned, split and compiled."""
