"""Measured memory of functions: kernel by kernel, or compiled as one module in a separate process."""
