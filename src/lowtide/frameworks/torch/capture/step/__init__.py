"""A whole training step as one graph: forward, backward and the optimizer's own update."""
