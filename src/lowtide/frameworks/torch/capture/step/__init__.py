"""Capture a whole training step as one graph: forward, backward and the optimizer's own update.

The optimizer's Python code is traced on fake tensors, so any fixed update works. Scheduled float settings are graph
inputs. `Decisions` checks in every call that branches stay the same.

An update can run as soon as its gradient is computed, to free the gradient early.
"""
