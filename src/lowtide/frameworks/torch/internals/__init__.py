"""Everything that is private to PyTorch or untyped there, one file a subsystem: a new PyTorch is ported here."""
