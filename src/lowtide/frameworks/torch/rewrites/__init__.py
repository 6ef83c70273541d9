"""Rewrites: programs that compute the same as another, in a form that leaves a plan more freedom.

Every change that lowtide makes to a program is a rewrite: it splits an op, replaces one, or reads through a copy. Applying
a plan (order, recomputation, copies) and splitting a joint graph into two passes are not rewrites.

A rewrite declares what it preserves (`Preserves`). `run_rewrites` is the only caller: it derives the values of new nodes,
and raises RewriteError if a rewrite changed more than it declares. `table` names all rewrites, and those that each kind
of program goes through. `chunks` has the rewrites that compute large tensors chunk by chunk.
"""
