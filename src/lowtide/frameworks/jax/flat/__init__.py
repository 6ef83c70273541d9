"""Traced functions as flat lists of equations: tracing, inlining of calls, execution and rewriting.

XLA inlines nested calls and merges equal equations, so its kernels can be predicted only from a flat program.
"""
