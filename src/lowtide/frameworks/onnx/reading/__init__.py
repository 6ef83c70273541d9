"""Translate a model with inferred shapes into a graph, with the nodes behind every op.

ONNX Runtime decides memory effects, so the graph follows its rules: views share storage, shape nodes run with the op
that writes their input, results without readers are never freed, and a kernel overwrites an input that nothing else
reads.
"""
