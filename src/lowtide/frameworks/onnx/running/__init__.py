"""ONNX Runtime, held to the order of the file and counted by an allocator of its own."""
