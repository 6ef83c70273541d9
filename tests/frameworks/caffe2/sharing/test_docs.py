"""Every example in docs/sharing.md gives what the page says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "sharing.md"


def test_every_example_of_the_page_runs_and_prints_what_it_shows() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 20
    assert results.failed == 0
