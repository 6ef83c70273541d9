"""Scans and loops that recompute instead of saving: per iteration, in chunks of iterations, or inside a body.

A scan saves values of every iteration for its backward scan. In `saving`, a plan of one joint iteration chooses them.
In `chunks`, only the state at the start of each chunk is saved. In `bodies`, any loop or branch is planned once. Scans
need no ties, since XLA does not merge two loops.
"""
