"""What the stock runtime would take for a model: its reuse of storage, its memory pattern and its arena, as a model."""
