"""The examples in docs/caffe2.md run."""

import doctest
from pathlib import Path


def test_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[3] / "docs" / "caffe2.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= 10
    assert found.failed == 0
