"""Ops and buffers of a graph as objects: a graph makes them on demand, oracles look at the same few again and again."""

from functools import lru_cache

from lowtide.engine.graph import Graph

op_of = lru_cache(4096)(Graph.op)
buffer_of = lru_cache(4096)(Graph.buffer)
