"""Exports of PyTorch's Inductor: what it dumps of a graph's kernels for a simulator, in and out in another order.

The public names are in `lowtide.inductor_export`. Nothing of PyTorch is needed.
"""
