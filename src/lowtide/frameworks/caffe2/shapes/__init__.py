"""Shapes and types of blobs, inferred from those of outer blobs."""
