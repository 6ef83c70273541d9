"""Translate a model with inferred shapes into a graph, with the nodes behind every op.

Memory follows ONNX Runtime: views share storage, shape nodes run right after their input's writer, and unread results
are never freed.
"""
