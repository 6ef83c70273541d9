"""Updates of the largest tensors done in chunks of their rows, so that gradients and temporaries die chunk by chunk."""
