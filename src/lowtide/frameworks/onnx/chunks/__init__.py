"""Compute the largest values of a model in chunks: a region of nodes becomes the body of a Scan.

A Scan reads and writes slices without a copy.
"""
