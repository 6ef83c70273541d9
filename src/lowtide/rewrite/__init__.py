"""Other programs that compute the same.

TensorFlow's memory optimizer makes sums accumulations (`grappler`).
"""

from lowtide.rewrite.accumulate import accumulate_sums, can_accumulate

__all__ = ["accumulate_sums", "can_accumulate"]
