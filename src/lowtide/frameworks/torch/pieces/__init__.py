"""Updates of the largest tensors done in pieces of their rows, so that gradients and temporaries die piece by piece."""
