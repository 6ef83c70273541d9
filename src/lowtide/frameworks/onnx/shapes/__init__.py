"""The type, the shape and the bytes of every value, found without running anything and without reading weights."""
