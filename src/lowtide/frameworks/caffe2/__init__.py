"""Caffe2: read NetDefs, plan them, write them with shared or freed blobs, and measure them in NumPy.

Caffe2 is not needed. `known` and `shapes` find the sizes of blobs, `translate` makes a graph in single assignment,
`apply` turns a plan into a net. `sharing` and `memonger` share storage by name. `running` interprets nets for
`--measure`.

The public names are in `lowtide.caffe2` and `lowtide.share`.
"""
