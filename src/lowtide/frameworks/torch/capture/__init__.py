"""Capture a function, module, exported program or training step as one aten graph.

Programs are traced on fake tensors: nothing is allocated or computed. A `Binding` feeds the graph from live objects.
"""
