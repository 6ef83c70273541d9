"""Caffe2: read NetDefs, plan them, write them with shared or freed blobs, and measure them in NumPy.

Caffe2 is not needed.
"""
