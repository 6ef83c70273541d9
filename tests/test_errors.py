"""Every error is one printable line, whatever went into its message."""

import pytest

from lowtide.errors import GraphError, LowtideError


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
