"""A plan as one page: the facts of it, gathered once, as a file for the browser and as text."""
