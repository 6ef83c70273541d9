"""The command line: one module per verb, loaded only when the verb runs."""

from lowtide.cli.entry import main

__all__ = ["main"]
