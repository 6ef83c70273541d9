"""Read programs of each framework, apply plans to them, and measure them. Frameworks are independent of one another.

See `docs/adding_a_framework.md`.
"""
