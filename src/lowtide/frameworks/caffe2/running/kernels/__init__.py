"""What ops compute, on NumPy arrays: one function a kind of op."""
