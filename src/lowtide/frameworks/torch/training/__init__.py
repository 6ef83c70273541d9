"""Planned training steps: captured, planned, compiled, called like a function."""
