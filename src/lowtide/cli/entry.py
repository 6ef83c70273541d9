"""The entry point of the `lowtide` command; sets interrupt handlers before importing anything large."""

import sys

from lowtide.cli.interrupts import handling_interrupts, interrupted_code


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 success, 1 budget missed or verification failed, 2 usage error, 3 bad input, 4 file not writable,
    128 + n interrupted by signal n.
    """
    with handling_interrupts():
        try:
            from lowtide.cli.command import run

            code = run()
        except KeyboardInterrupt:
            print("lowtide: interrupted", file=sys.stderr)
            code = interrupted_code()
    exec("")  # resets the flag that makes Python exit with SIGINT after an interrupt within exec
    sys.exit(code)
