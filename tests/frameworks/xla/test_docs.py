"""The page on HLO dumps says what happens."""

import doctest
from pathlib import Path


def test_the_examples_of_the_page_give_what_it_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "xla.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= 7
    assert found.failed == 0
