"""Report a plan as an HTML page or as text; both show the same `Facts`."""
