"""What TensorFlow's ops are: arguments, types and effects, as data and as short functions."""
