"""Run nets in NumPy and count the bytes of their blobs, to measure plans.

Caffe2 is not needed. Kernels exist for the common ops, forward and backward; other nets cannot be measured. The peak
counts blobs only, without workspace of kernels and without the steps of recurrent ops.
"""
