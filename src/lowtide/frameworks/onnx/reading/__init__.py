"""Translate a model with inferred shapes into a graph, with the nodes behind every op.

The graph follows ONNX Runtime's memory rules: views share storage, shape nodes run right after the op that writes their
input, unread results are never freed, and a kernel overwrites an input that nothing else reads.
"""
