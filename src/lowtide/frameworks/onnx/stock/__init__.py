"""Predict the allocations of the stock runtime: ONNX Runtime with default settings.

From the second run on, it places all values in one block of an arena.
"""
