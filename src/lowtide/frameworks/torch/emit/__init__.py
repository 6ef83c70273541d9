"""Rebuild a program in the order of a plan, run it, or export it.

Views are created before their first reader, and elements of a multi-output op right after it, so memory follows the
plan.
"""
