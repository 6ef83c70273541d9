"""Compute the largest values of a model in chunks: a region of nodes becomes the body of a Scan.

`choose` picks regions: each grows around the node that needs most memory until its edge is small (`region`). `axes` has
a rule per operator: which axes a chunk may cut, in real numbers. A Scan reads and writes slices without a copy
(`scans`). One run computes all regions both ways, and only numbers of chunks with equal bits are used (`write`).
"""
