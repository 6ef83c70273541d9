"""Predict the allocations of the stock runtime: ONNX Runtime with default settings.

It walks the graph in an order of its own (`default_order`), reuses storage (`reuse`), runs bodies in frames (`frames`),
and from the second run on places all values in one block of an arena (`arena`).
"""
