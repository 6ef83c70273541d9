"""Exports of PyTorch's Inductor: read its dumps of the kernels of a graph, and write them in another order.

PyTorch is not needed.
"""
