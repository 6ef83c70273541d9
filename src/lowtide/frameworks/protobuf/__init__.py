"""Read and write protocol buffer messages, binary and as text, without the protobuf package.

Unchanged messages are written as they were read, and unknown fields are kept.
"""
