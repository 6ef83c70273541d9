"""Facts about ONNX nodes and operators, as tables and short functions."""
