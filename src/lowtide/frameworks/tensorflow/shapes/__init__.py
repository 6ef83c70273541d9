"""Bytes of every output of every node: from what a graph records, from what is given, or inferred by TensorFlow."""
