"""Names from files, made safe to print."""


def printable(text: str) -> str:
    """Return text in which line ends, escape sequences and other control characters are spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
