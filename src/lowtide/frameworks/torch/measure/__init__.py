"""Measure peaks, times and op costs of programs, and explain which tensors are alive at the peak."""
