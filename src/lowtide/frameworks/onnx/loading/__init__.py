"""Load ONNX models: parse files without their weights, check them, and write edited copies.

Models may be larger than memory, so files are mapped and handled as protobuf fields (`fields`, `light`): weights are
never parsed, and an edited copy refers to unchanged byte ranges (`rewrite`).
"""
