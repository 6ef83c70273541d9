"""XLA: read HLO modules as graphs, write them in a planned order, and compare with XLA's buffer assignment.

Nothing is run: jaxlib compiles only StableHLO, which has neither an order nor control edges.
"""
