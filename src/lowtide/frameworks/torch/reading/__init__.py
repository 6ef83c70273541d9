"""Read a captured program into a graph: ops and buffers, effects, in-place pairs, scratch memory and costs.

`lower` turns FX nodes into ops over storages, so that views add no buffers. `graph_of` adds to each op its effects, its
in-place pairs, its cost and its scratch memory, and builds the engine's graph. `Reading` caches both for one program.

Scratch rules follow measurements of PyTorch's CPU kernels. If every thread has a buffer, one thread's counts, so that
plans do not depend on the number of threads. The tests run the kernels and compare.
"""
