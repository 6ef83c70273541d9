"""The examples in docs/sharing.md run."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "sharing.md"


def test_examples_of_the_page_run() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 20
    assert results.failed == 0
