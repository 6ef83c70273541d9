"""Run a plan's copies to the host and back, on CPU and CUDA."""
