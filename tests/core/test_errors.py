"""Every error is one printable line, whatever went into its message."""

import pytest

from lowtide.core.errors import GraphError, LowtideError


@pytest.mark.parametrize("name", ["two\nlines", "bell\a", "\x1b[31mred", "line\u2028separator", "tab\t", "\ud800"])
def test_a_message_is_one_printable_line(name: str) -> None:
    message = str(GraphError(f"op {name} is wrong; mend it"))
    assert message.isprintable()
    assert message.startswith("op ")
    assert message.endswith("is wrong; mend it")


def test_a_huge_name_does_not_make_a_huge_message() -> None:
    message = str(LowtideError(f"op {'x' * 10**7} is wrong; mend it"))
    assert len(message) < 5000
    assert message.endswith("is wrong; mend it")


@pytest.mark.parametrize("quote", ["'", "`", '"'])
def test_long_names_are_cut_and_what_is_said_of_them_is_not(quote: str) -> None:
    said = "reads what the caller's own buffers hold, " * 10
    name = "x" * 1000
    message = str(LowtideError(f"op {quote}{name}{quote} {said} of {quote}y{quote}; {name[:150]} mend it"))
    assert message.startswith(f"op {quote}xxx")
    assert message.endswith(f"xxx{quote} {said} of {quote}y{quote}; {name[:150]} mend it")
    assert len(message) < 220 + len(f"op {said} of ''; {name[:150]} mend it")


def test_a_message_of_many_quotes_takes_no_long_time() -> None:
    """Every other quote might open a name; looking for the end of each would be a million times a million steps."""
    assert len(str(LowtideError(" 'x" * 10**6))) < 5000
