"""The examples in docs/inductor_exports.md run."""

import doctest
from pathlib import Path


def test_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[3] / "docs" / "inductor_exports.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= 6
    assert found.failed == 0
