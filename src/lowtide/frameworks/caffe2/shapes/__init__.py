"""Shapes and types of blobs, inferred from those of the blobs that exist before a net runs."""
