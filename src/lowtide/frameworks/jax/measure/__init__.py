"""Measured memory of functions: kernel by kernel, or compiled as one module."""
