"""Mesh-TensorFlow: schedule the operations of a graph, with sizes on the whole mesh or on one device.

TensorFlow is not needed: the graph answers through its methods.
"""
