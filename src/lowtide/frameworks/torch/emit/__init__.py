"""Rebuild a program in the order of a plan, run it, or export it.

Each run of a plan becomes a node. A view is created right before its first reader, and each element of a multi-output
op right after the op, so neither uses memory longer than planned. Copies and collectives are asynchronous; the emitted
program waits for them as late as the plan allows.
"""
