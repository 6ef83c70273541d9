"""The command line: one file a verb."""

from lowtide.cli.entry import main

__all__ = ["main"]
