"""Run by a process of its own: what jaxlib's parsers make of content that may be damaged, and may end them."""

import sys

from lowtide.core.errors import one_line
from lowtide.frameworks.xla.loading.apart import REFUSED
from lowtide.frameworks.xla.loading.jaxlib import CONVERSIONS


def main() -> None:
    """Convert what comes in by the conversion named first; write the text, or one line on why there is none."""
    try:
        text = CONVERSIONS[sys.argv[1]](sys.stdin.buffer.read())
    except Exception as error:  # whatever jaxlib raises
        print(one_line(error), file=sys.stderr)
        sys.exit(REFUSED)
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main()
