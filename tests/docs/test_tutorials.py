"""Pages that a reader follows run as they stand."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.runnable import blocks, run_page

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    ROOT / "docs" / "development" / "writing_an_algorithm.md",
    ROOT / "docs" / "reference" / "schemas.md",
    ROOT / "docs" / "reference" / "api" / "index.md",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("folder")
def test_a_page_prints_what_it_shows(page: Path) -> None:
    assert run_page(page) >= 1


def test_the_examples_of_the_readme_run(folder: Path) -> None:
    """The model is that of the tutorial on servers."""
    tutorial = (ROOT / "docs" / "tutorials" / "onnx_server.md").read_text(encoding="utf-8")
    (models,) = (block.text for block in blocks(tutorial) if block.file == "models.py")
    (folder / "models.py").write_text(models, encoding="utf-8")
    runpy.run_path("models.py")["branches"]("model.onnx", width=32, count=4)
    assert run_page(ROOT / "README.md") == 4
