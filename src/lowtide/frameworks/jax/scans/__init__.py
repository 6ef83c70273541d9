"""Scans whose saved values are computed again, some turns at a time, instead of being kept for all turns."""
