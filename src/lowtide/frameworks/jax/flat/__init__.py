"""Traced functions as flat lists of equations, inlined and merged as XLA does."""
