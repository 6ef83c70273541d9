"""`lowtide costs`: times the ops of a program and writes a file that `--costs` takes."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

DEEP = ["--budget", "50%", "--allow", "reorder,share,recompute"]


def test_costs_of_a_program_price_its_plans(lowtide: Command, programs: str, tmp_path: Path) -> None:
    model, out = f"{programs}:deep", tmp_path / "here.costs.json"
    done = lowtide("costs", model, "-o", out, "--json")
    assert (done.code, done.complaints) == (0, [])
    fields = json.loads(done.stdout)
    assert fields["kind"] == "costs"
    assert fields["estimated"] == []
    assert fields["seconds"] == pytest.approx(sum(kind["seconds"] for kind in fields["kinds"]))
    planned = json.loads(lowtide("plan", model, *DEEP, "--costs", out, "--json").stdout)
    assert planned["costs"] == "measured"
    assert planned["base_cost"] == pytest.approx(fields["seconds"])
    assert "measured prices" in " ".join(lowtide("plan", model, *DEEP, "--costs", out).stdout.split())


def test_the_page_for_people_names_the_device_and_the_dearest_kinds(
    lowtide: Command, programs: str, tmp_path: Path
) -> None:
    done = lowtide("costs", f"{programs}:train", "-o", tmp_path / "x.costs.json.gz")
    assert done.code == 0
    assert "CPU" in done.stdout
    assert "aten.addmm" in done.stdout


@pytest.mark.parametrize(("name", "code"), [("x.txt", 2), ("missing/x.costs.json", 2)])
def test_costs_refuses_a_bad_place_before_it_measures(
    lowtide: Command, programs: str, tmp_path: Path, name: str, code: int
) -> None:
    done = lowtide("costs", f"{programs}:train", "-o", tmp_path / name)
    assert (done.code, done.stdout, len(done.complaints)) == (code, "", 1)


@pytest.mark.parametrize("kind", ["graph_file", "onnx_file"])
def test_models_without_kernels_are_refused_with_the_way_around(
    lowtide: Command, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    model: Path = request.getfixturevalue(kind)
    dims = ["--dim", "batch=4"] if kind == "onnx_file" else []
    done = lowtide("costs", model, *dims, "-o", tmp_path / "x.costs.json")
    assert (done.code, len(done.complaints)) == (3, 1)
    assert "--costs eager" in done.complaints[0]
    assert not (tmp_path / "x.costs.json").exists()
