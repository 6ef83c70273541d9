"""Compute the largest values of a model in chunks: a region of nodes becomes the body of a Scan.

`choose` grows a region around the node with the largest need until its edge is small (`region`), by rules per operator
(`axes`). A Scan reads and writes slices without a copy (`scans`). A trial run compares bits and decides which numbers
of chunks are used (`write`).
"""
