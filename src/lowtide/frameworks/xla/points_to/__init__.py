"""Which storage every part of every value lies in: logical buffers, and those that share one place."""
