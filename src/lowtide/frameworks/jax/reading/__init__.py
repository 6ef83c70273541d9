"""From a flat program to a graph: XLA's kernels, their bytes and arithmetic, and their lines in user code.

The graph has one op per expected kernel. Views are neither ops nor buffers. Bodies of loops and branches are callees.
"""
