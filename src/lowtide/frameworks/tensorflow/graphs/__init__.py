"""GraphDefs and what holds them: read without copying contents, written with all that was not changed as it was."""
