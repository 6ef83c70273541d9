"""Scans and other loops that compute again what they would save or hold: some turns at a time, or turn by turn."""
