"""What somebody meant who wrote a name that is none."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that is none: the nearest one where one is near, and all there are."""
    names = list(known)
    near = get_close_matches(str(name).lower(), names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ";"
    return f"unknown {what} {name!r}{meant} choose one of {', '.join(names)}"
