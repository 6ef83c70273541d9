"""Rewrite nodes: recomputed copies, swaps and accumulations, and initial values of variables."""
