"""Run nets in NumPy and count the bytes of their blobs, to measure plans without Caffe2.

Only nets of common ops can be measured. The peak excludes the scratch of kernels and the steps of recurrent ops.
"""
