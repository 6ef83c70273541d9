"""TensorFlow's ops: their arguments, types and effects on memory."""
