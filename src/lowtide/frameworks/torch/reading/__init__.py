"""From a captured program to a graph: ops and buffers, effects, in-place forms, scratch memory, costs."""
