"""Where the `lowtide` command begins: the handlers of interrupts stand before anything large is loaded."""

import sys

from lowtide.cli.interrupts import heeding_interrupts, interrupted_code


def main() -> None:
    """Run the command line and exit.

    Codes: 0 ok, 1 budget or verification failed, 2 usage, 3 bad input, 4 a file could not be written, 128 + n
    interrupted by signal n.
    """
    with heeding_interrupts():
        try:
            from lowtide.cli.command import run

            code = run()
        except KeyboardInterrupt:
            print("lowtide: interrupted", file=sys.stderr)
            code = interrupted_code()
    exec("")  # Python forgets that an interrupt came within a string that it ran, and does not exit with SIGINT for it
    sys.exit(code)
