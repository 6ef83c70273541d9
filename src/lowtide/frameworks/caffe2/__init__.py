"""Caffe2: read NetDefs, plan them, write them with shared or freed blobs, and measure them in NumPy.

Caffe2 itself is not needed. `known` and `shapes` find the sizes of blobs, `translate` makes a graph in single
assignment, `apply` turns a plan back into a net. `sharing` and `memonger` share storage by name, as Caffe2's memonger
does. `running` is a small interpreter for `--measure`.

The public names are in `lowtide.caffe2` and `lowtide.share`.
"""
