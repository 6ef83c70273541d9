"""Nets as this framework works with them: loaded from anywhere, seen by the names of their blobs, renamed."""
