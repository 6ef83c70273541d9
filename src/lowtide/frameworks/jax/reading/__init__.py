"""From a flat program to a graph: XLA's kernels, their bytes and arithmetic, and their lines in user code."""
