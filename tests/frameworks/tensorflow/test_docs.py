"""The page on graphs of TensorFlow says what happens."""

import doctest
from pathlib import Path


def test_the_examples_of_the_page_give_what_it_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "tensorflow.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= 8
    assert found.failed == 0
