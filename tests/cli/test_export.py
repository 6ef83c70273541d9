"""`lowtide export`: a plan for other tools, by the ending of the file."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.mark.parametrize("ending", ["pickle", "trace.json", "trace.json.gz", "csv", "dot", "svg"])
def test_a_plan_is_exported_by_the_ending_of_the_file(
    lowtide: Command, graph_file: Path, tmp_path: Path, ending: str
) -> None:
    output = tmp_path / f"diamond.{ending}"
    done = lowtide("export", graph_file, "-o", output)
    assert (done.code, done.complaints) == (0, [])
    assert output.stat().st_size > 0


def test_an_exported_snapshot_is_a_model_and_its_buffers_are_packed(
    lowtide: Command, graph_file: Path, tmp_path: Path
) -> None:
    snapshot, buffers = tmp_path / "seen.pickle", tmp_path / "seen.csv"
    assert lowtide("export", graph_file, "--scheduler", "given", "-o", snapshot).code == 0
    assert json.loads(lowtide("inspect", snapshot, "--json").stdout)["peak_bytes"] == {"device0": 2210}
    assert lowtide("export", graph_file, "-o", buffers).code == 0
    assert json.loads(lowtide("pack", buffers, "--json").stdout)["arena_bytes"] == 1211


def test_what_cannot_be_exported_so_is_refused_before_planning(lowtide: Command, graph_file: Path) -> None:
    assert lowtide("export", graph_file, "-o", "plan.png").code == 2
    refused = lowtide("export", graph_file, "-o", "plan.svg", "--space", "nowhere")
    assert refused.complaints == ["lowtide: unknown memory space 'nowhere'; choose one of device"]
