"""Capture a whole training step as one graph: forward, backward and the optimizer's own update.

The optimizer's Python code runs once on fake stand-ins for its parameters and state, so any optimizer whose update is a
fixed program works. Learning rates, momenta, betas and weight decays that are floats become inputs of the graph, so
schedules may change them. State and settings of one element keep their present values while tracing. A branch on such a
value is taken as it would be now; `Decisions` checks in every call that it would be taken again.

A parameter's update can run as soon as its gradient is computed. This frees the gradient early.
"""
