"""The program of one rank of a large training run, written with functional collectives."""
