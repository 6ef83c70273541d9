"""Results in formats of others, one a file."""
