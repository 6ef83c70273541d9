"""The tutorials run as they stand."""

import sys
from pathlib import Path

import pytest

from tests.docs.runnable import run_page

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    before = set(sys.modules)
    try:
        assert run_page(page) >= 3
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
