"""What the tests of pages share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
