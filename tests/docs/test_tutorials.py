"""Pages that a reader follows run as they stand."""

from pathlib import Path

import pytest

from tests.docs.runnable import run_page

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    ROOT / "docs" / "development" / "writing_an_algorithm.md",
    ROOT / "docs" / "reference" / "schemas.md",
    ROOT / "docs" / "reference" / "api" / "index.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("folder")
def test_a_page_prints_what_it_shows(page: Path) -> None:
    assert run_page(page) >= 1
