"""The command line: one module per verb, loaded only when the verb runs.

A verb reads its options, calls the library, and prints the result as text or JSON. Errors become one line on stderr and
an exit code (`command`). Interrupt handlers are set before anything large is imported (`entry`, `interrupts`).
"""

from lowtide.cli.entry import main

__all__ = ["main"]
