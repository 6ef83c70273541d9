"""Capture a function, module, exported program or training step as one aten graph.

Programs run on fake tensors while they are traced: nothing is allocated or computed, and the user's objects stay
unchanged. Each kind of program has a `Binding`, which feeds the graph from the live modules, optimizers and arguments
of a call.
"""
