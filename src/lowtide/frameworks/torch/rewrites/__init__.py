"""Rewrites: equivalent programs that leave a plan more freedom.

Every change of a program is a rewrite: it splits an op, replaces one, or reads through a copy. Applying a plan (order,
recomputation, copies) and splitting a joint graph into passes are not rewrites.

A rewrite declares its guarantees (`Preserves`). Only `run_rewrites` calls it, derives the values of new nodes, and
raises RewriteError if the declaration is broken. `table` lists all rewrites, and those of each kind of program.
"""
