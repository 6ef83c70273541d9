"""HLO text: a tolerant parser that keeps every byte, and functions that reorder whole instructions.

jaxlib's parser refuses unknown opcodes and prints modules in its own format.
"""
