"""Run graphs in TensorFlow, and read their memory from its reports and from the operating system."""
