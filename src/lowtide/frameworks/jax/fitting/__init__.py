"""Functions that fit a budget: compile planned candidates and choose by XLA's own figures.

XLA orders kernels itself. If it needs more than a plan's peak, the next plan aims lower, or its order is held.
"""
