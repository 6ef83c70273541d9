"""Capture a whole training step as one graph: forward, backward and the optimizer's own update.

The optimizer's Python code is traced on fake tensors, so any optimizer with a fixed update works. Its scheduled float
settings are inputs of the graph. A branch on a setting or on small state is taken as it would be now; `Decisions`
checks it in every call.

Because an update can run as soon as its gradient is computed, the gradient is freed early.
"""
