"""What programs take for real, beside what was predicted, and who holds memory at the peak."""
