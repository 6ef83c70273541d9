"""Rewrites: equivalent programs that leave a plan more freedom.

A rewrite splits an op, replaces one, or reads through a copy. It declares its guarantees (`Preserves`). Only
`run_rewrites` calls it, and raises RewriteError if the declaration is broken. `table` lists all rewrites.
"""
