"""The command line: one file a verb."""

from lowtide.cli.main import main

__all__ = ["main"]
