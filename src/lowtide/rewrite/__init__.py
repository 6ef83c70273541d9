"""Other programs that compute the same."""

from lowtide.rewrite.accumulate import accumulate_sums, can_accumulate

__all__ = ["accumulate_sums", "can_accumulate"]
