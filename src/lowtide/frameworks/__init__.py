"""Read programs of each framework, apply plans to them, and measure them. Frameworks are independent of one another.

`model.py` defines the interface, `table.py` lists the frameworks, and `docs/adding_a_framework.md` explains how to add
one.
"""
