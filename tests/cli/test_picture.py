"""The picture of memory is for people: on a terminal and in notebooks, but not in pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminals import shown_on_a_terminal

_NOTEBOOK = """
import lowtide
builder = lowtide.GraphBuilder("one layer")
x = builder.add_buffer("x", 2048, lowtide.Lifetime.INPUT)
builder.add_op("layer", "relu", reads=[x], writes=[builder.add_buffer("y", 1024, lowtide.Lifetime.OUTPUT)])
lowtide.minimize(builder.build())
"""


def started(graph_file: Path, stdout: int) -> "subprocess.Popen[bytes]":
    """Start `lowtide optimize` in 70 columns with an output."""
    lowtide = Path(sys.executable).with_name("lowtide")
    command = [lowtide, "optimize", graph_file, "-o", graph_file.with_name("p.plan.json")]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "70"})


def test_optimize_draws_memory_on_a_terminal_within_its_width(graph_file: Path) -> None:
    shown = shown_on_a_terminal(lambda terminal: started(graph_file, terminal))
    lines = shown.replace("\r", "").splitlines()
    drawn = lines[next(number for number, line in enumerate(lines) if line.startswith("2,210 B |")) :]
    assert "░" in drawn[0]
    assert "█ after   ░ before" in drawn[-1]
    assert len(drawn) <= 12
    assert max(map(len, drawn)) <= 70


def test_optimize_draws_nothing_in_a_pipe(graph_file: Path, tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("wb") as output:
        assert started(graph_file, output.fileno()).wait() == 0
    assert "█" not in (tmp_path / "out.txt").read_text(encoding="utf-8")


def test_a_notebook_gets_the_picture_of_a_result() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_NOTEBOOK)])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    (shown,) = [each["data"]["text/html"] for each in notebook.cells[0].outputs if "data" in each]
    assert "<svg" in shown
    assert "<script" not in shown
    assert "one layer needs 3,072 B at its peak" in shown
