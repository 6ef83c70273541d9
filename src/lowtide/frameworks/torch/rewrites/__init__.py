"""Programs that compute the same in another way, one rewrite a file."""
