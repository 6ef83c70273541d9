"""The examples in docs/packing.md give the shown results."""

import re
from pathlib import Path

import pytest

from lowtide.engine.packing import pack
from lowtide.engine.packing.csv_file import read_buffer_file

PAGE = (Path(__file__).parents[3] / "docs" / "packing.md").read_text(encoding="utf-8")


def block(beginning: str) -> str:
    """Return the only block of code with this beginning."""
    (found,) = (text for text in re.findall(r"```\w*\n(.*?)```", PAGE, re.DOTALL) if text.startswith(beginning))
    return found


def test_the_file_on_the_page_is_packed_as_shown(tmp_path: Path) -> None:
    (tmp_path / "buffers.csv").write_text(block("id,"))
    packed = pack(read_buffer_file(tmp_path / "buffers.csv").buffers)
    assert f"5 buffers, {packed.status}" in block("$ lowtide pack")
    for figure in (packed.arena_bytes, packed.lower_bound_bytes):
        assert f" {figure} bytes" in block("$ lowtide pack")


def test_the_python_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(block("import lowtide"), names)
    packed = names["packed"]
    assert (packed.arena_bytes, packed.status) == (8, "optimal")  # type: ignore[attr-defined]
    assert capsys.readouterr().out == ""
    exec(block("from lowtide.engine.graph import Space"), names)
    result = names["result"]
    assert (result.status, result.spilled) == ("optimal", ())  # type: ignore[attr-defined]
