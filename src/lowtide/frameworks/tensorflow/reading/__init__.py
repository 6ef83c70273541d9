"""Translate the nodes of a TensorFlow graph to a lowtide graph, and keep the node behind every op."""
