"""`--device`: a program on a device by name."""

import json
from pathlib import Path

import pytest

from lowtide.engine.costs import device_named
from lowtide.engine.graph import GraphBuilder, Lifetime, write_graph_file
from tests.cli.conftest import Command

PROGRAM = "tests/frameworks/torch/absent_device/programs.py:on_cuda"


def test_a_graph_file_is_compared_with_the_memory_of_a_device(lowtide: Command, graph_file: Path) -> None:
    done = lowtide("fits", graph_file, "--device", "t4", "--json")
    assert done.code == 0
    assert json.loads(done.stdout)["device_bytes"] == device_named("t4").usable_bytes


def test_the_cuda_context_is_subtracted_from_the_memory_of_a_device_but_not_from_a_size(
    lowtide: Command, tmp_path: Path
) -> None:
    total = device_named("t4").memory_bytes
    builder = GraphBuilder("all of a T4")
    builder.add_op("make", "make", writes=[builder.add_buffer("out", total, Lifetime.OUTPUT)])
    path = tmp_path / "large.graph.json"
    write_graph_file(builder.build(), path)
    assert [lowtide("fits", path, "--device", device).code for device in ("t4", f"{total}B")] == [1, 0]


@pytest.mark.parametrize("verb", ["plan", "check", "report"])
def test_only_training_steps_are_lowered(verb: str, lowtide: Command, graph_file: Path) -> None:
    needed = {"plan": [], "check": ["--max-peak", "1GiB"], "report": ["--text"]}
    done = lowtide(verb, graph_file, "--device", "h100", *needed[verb])
    assert done.code == 2
    assert "for h100; give package.module:callable" in done.stderr


def test_an_unknown_device_is_refused_before_anything_runs(lowtide: Command) -> None:
    done = lowtide("plan", PROGRAM, "--device", "h101")
    assert done.code == 2
    assert "did you mean 'h100'" in done.stderr


@pytest.mark.usefixtures("cache_of_the_run")
def test_a_plan_on_a_device_shows_the_eager_the_compiled_and_the_planned_peak(lowtide: Command) -> None:
    done = lowtide("plan", PROGRAM, "--device", "a100-40", "--budget", "70%", "--json")
    assert done.code == 0
    found = json.loads(done.stdout)
    facts = found["on_device"]
    assert facts["usable_bytes"] == device_named("a100-40").usable_bytes
    assert facts["eager_peak_bytes"] > facts["compiled_peak_bytes"] > next(iter(found["peak_bytes"].values())) / 0.71
    assert found["costs"] == "a100-40"
    assert found["reruns"] > 0
