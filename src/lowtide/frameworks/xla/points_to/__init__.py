"""Points-to analysis: the logical buffer of every part of every value, and the buffers that share storage.

XLA inserts a copy before a value is overwritten too early. Here the new value gets its own storage instead, so that
modules from before copy insertion can be read.
"""
