"""What functions take for real: kernel by kernel in this process, or compiled as a whole in one of their own."""
