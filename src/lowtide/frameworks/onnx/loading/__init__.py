"""Load ONNX models: parse files without their weights, check them, and write edited copies.

Models may be larger than memory, so files are mapped and weights are never parsed.
"""
