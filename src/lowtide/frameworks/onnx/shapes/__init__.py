"""Infer the type, shape and bytes of every value without running anything or reading weights."""
