"""Other programs that compute the same.

For the TensorFlow framework to come, whose optimizer makes sums accumulations.
"""

from lowtide.rewrite.accumulate import accumulate_sums, can_accumulate

__all__ = ["accumulate_sums", "can_accumulate"]
