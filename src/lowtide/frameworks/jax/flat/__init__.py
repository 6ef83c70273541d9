"""Functions as one flat list of equations: what is traced, what is written out in line, how it runs."""
