"""Functions that fit a budget: compile planned candidates and choose by XLA's own figures.

A plan's peak is a prediction, since XLA orders kernels itself. If XLA needs more than the plan, the next plan aims
lower, or its order is held.
"""
