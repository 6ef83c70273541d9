"""Planned training steps: captured, planned, compiled, and called like a function."""
