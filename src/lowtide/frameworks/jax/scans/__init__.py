"""Scans and loops that recompute instead of saving: per iteration, in chunks of iterations, or inside a body.

In `saving`, a plan of one joint iteration chooses the values saved for the backward scan. In `chunks`, only the state
at the start of each chunk is saved. Scans need no ties, since XLA does not merge two loops.
"""
