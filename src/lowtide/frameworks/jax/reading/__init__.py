"""From a flat program to a graph: XLA's kernels, their bytes and arithmetic, and their lines in the user's code.

The graph has one op per expected kernel. Views are neither ops nor buffers. Bodies of loops and branches are callees.
"""
