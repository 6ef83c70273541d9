"""Predict what the stock runtime, ONNX Runtime with default settings, allocates for a model.

It ignores the file's order and walks the graph itself (`default_order`), reuses storage by its own rules (`reuse`),
runs bodies in frames (`frames`), and from the second run on places all values in one block of an arena (`arena`).
"""
