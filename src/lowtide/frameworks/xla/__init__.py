"""XLA: read HLO modules as graphs, write them in a planned order, and compare with XLA's buffer assignment.

The public names are in `lowtide.xla`. A module is its HLO text, cut into instructions that keep every byte. Other
sources become text through jaxlib. Nothing is run: jaxlib compiles only StableHLO, which has neither an order nor
control edges.
"""
