"""Read a captured program into a graph: ops and buffers, effects, in-place pairs, scratch memory and costs.

`lower` turns FX nodes into ops over storages, `graph_of` adds all other properties, and `Reading` caches both. Scratch
rules follow measurements of kernels, which the tests repeat. Per-thread buffers count for one thread, so that plans do
not depend on the number of threads.
"""
