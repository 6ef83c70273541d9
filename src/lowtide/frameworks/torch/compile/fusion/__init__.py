"""What plugs into PyTorch's Inductor: the partitioner and the order after fusion."""
