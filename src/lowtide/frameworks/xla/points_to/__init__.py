"""Points-to analysis: the logical buffer of every part of every value, and the buffers that share storage.

XLA copies a value that is overwritten too early. Here the new value gets its own storage, so that modules from before
copy insertion can be read.
"""
