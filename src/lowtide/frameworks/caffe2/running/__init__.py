"""Run nets in NumPy and count the bytes of their blobs, to measure plans without Caffe2.

The peak excludes scratch of kernels and steps of recurrent ops.
"""
