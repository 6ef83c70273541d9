"""A small interpreter of nets on NumPy arrays, which counts the bytes of the blobs that it holds."""
