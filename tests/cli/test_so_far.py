"""While a long search runs, the best plan so far lies beside the output, and goes once the result is written."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lowtide import read_graph_file, read_plan_file, verify
from lowtide.api.optimize import plan_kept_beside
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import GraphBuilder, write_graph_file
from lowtide.engine.plan import Plan
from tests.cli.conftest import Command


def hard_to_order(n_ops: int, window: int) -> GraphBuilder:
    """Ops that read up to three of the last results each, so that the search works long without a proof."""
    rng = random.Random(n_ops)
    builder = GraphBuilder("hard to order")
    results: list[int] = []
    for op in range(n_ops):
        reads = rng.sample(results[-window:], min(len(results), rng.choice((1, 2, 3))))
        results.append(builder.add_buffer(f"result {op}", rng.randrange(1, 1000)))
        builder.add_op(f"op {op}", "op", reads=reads, writes=results[-1:])
    return builder


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("so_far") / "hard.graph.json"
    write_graph_file(hard_to_order(120, 40).build(), path)
    return path


def test_a_killed_search_leaves_the_best_plan_so_far(hard: Path, tmp_path: Path) -> None:
    so_far = tmp_path / "out.so-far.plan.json"
    command = [str(Path(sys.executable).with_name("lowtide")), "plan", str(hard), "--effort", "max"]
    with subprocess.Popen([*command, "-o", str(tmp_path / "out.plan.json.gz")]) as process:
        while process.poll() is None and not so_far.exists():
            time.sleep(0.01)
        process.kill()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [so_far.name]
    graph = read_graph_file(hard)
    plan = read_plan_file(so_far, graph)
    verify(graph, plan)
    assert plan.status == "interrupted"
    assert plan.peak_bytes["device"] < simulate(graph, Plan.baseline(graph)).peak_bytes["device"]


def test_nothing_but_the_plan_is_left_when_the_search_ends(tmp_path: Path, lowtide: Command) -> None:
    graph = tmp_path / "graph.json"
    write_graph_file(hard_to_order(60, 30).build(), graph)
    assert lowtide("plan", graph, "--effort", "fast", "-o", tmp_path / "out.plan.json").code == 0
    graph.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["out.plan.json"]


@pytest.mark.parametrize("output", [None, Path("no such folder", "out.plan.json")])
def test_a_place_that_cannot_be_written_does_not_end_the_search(hard: Path, output: Path | None) -> None:
    graph = read_graph_file(hard)
    with plan_kept_beside(output) as keep:
        keep(graph, Plan.baseline(graph))


def test_what_ends_before_the_result_is_written_leaves_the_best_plan_so_far(hard: Path, tmp_path: Path) -> None:
    graph = read_graph_file(hard)

    def interrupted() -> None:
        with plan_kept_beside(tmp_path / "out.plan.json") as keep:
            keep(graph, Plan.baseline(graph))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    verify(graph, read_plan_file(tmp_path / "out.so-far.plan.json", graph))
