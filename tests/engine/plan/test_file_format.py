"""Plan files: what is written is read back and verified; what is not for this graph is refused."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import FingerprintError, MalformedInputError, UsageError, VerificationError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, read_plan_file, write_plan_file
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.plans import callee_plans, claim, plan_of
from tests.strategies import graphs, random_graph, rematerializing_plan


def _same(one: Plan, two: Plan) -> bool:
    claims = ("graph_fingerprint", "status", "peak_bytes", "lower_bound_bytes", "arena_bytes", "addresses")
    return (
        list(one.steps()) == list(two.steps())
        and all(getattr(one, name) == getattr(two, name) for name in claims)
        and list(one.callees) == list(two.callees)
        and all(list(one.callees[name].steps()) == list(two.callees[name].steps()) for name in one.callees)
        and all(one.callees[name].peak_bytes == two.callees[name].peak_bytes for name in one.callees)
    )


@given(graphs(), st.integers(0, 10**6), st.booleans())
def test_a_plan_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, seed: int, reordered: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.plan.json"
    plan = plan_of(graph, range(graph.n_ops)) if reordered else claim(graph, rematerializing_plan(graph, Random(seed)))
    plan = replace(plan, callees=callee_plans(graph))
    write_plan_file(plan, path, graph)
    assert _same(read_plan_file(path, graph), plan)


def test_a_compressed_plan_file_reads_alike(tmp_path: Path) -> None:
    graph = random_graph(seed=8, n_ops=200)
    plan = plan_of(graph, range(graph.n_ops))
    write_plan_file(plan, tmp_path / "p.plan.json.gz", graph)
    assert (tmp_path / "p.plan.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert _same(read_plan_file(tmp_path / "p.plan.json.gz", graph), plan)


def test_steps_take_the_forms_that_are_documented(tmp_path: Path) -> None:
    """Steps name memory spaces by name; pairs and spaces are left out where there is nothing to say."""
    graph = every_feature_graph()
    write_plan_file(every_feature_plan(graph), tmp_path / "p.plan.json", graph)
    steps = json.loads((tmp_path / "p.plan.json").read_bytes())["steps"]
    for form in (["run", 0], ["run", 1, [[3, 4]]], ["free", 3], ["free", 4, "host"], ["copy_out", 4, "host"]):
        assert form in steps
    assert ["copy_in", 4, "host"] in steps


def _document(tmp_path: Path) -> tuple[Graph, dict[str, Any], Path]:
    graph, path = every_feature_graph(), tmp_path / "p.plan.json"
    write_plan_file(claim(graph, every_feature_plan(graph)), path, graph)
    return graph, json.loads(path.read_bytes()), path


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"graph": "0" * 64}, FingerprintError, "made for another graph"),
        ({"graph": "0" * 64, "steps": [["free", 99]]}, FingerprintError, "made for another graph"),
        ({"peak_bytes": {"device": 1, "host": 160}}, VerificationError, "claims peak_bytes 1"),
        ({"steps": [["run", 0]]}, VerificationError, "step"),
        ({"steps": [["free", 0, "moon"]]}, MalformedInputError, "'moon' is not one of the graph: 'device', 'host'"),
        ({"steps": [["copy_in", 0, "moon"]]}, MalformedInputError, "'moon'"),
        ({"addresses": [[0, 0, 1, "moon", 0]]}, MalformedInputError, "'moon'"),
        ({"callees": {"loop": {"steps": []}}}, MalformedInputError, "'loop', but no op calls it"),
        ({"callees": {"loop.body": {"steps": []}}}, VerificationError, "'step' never ran"),
        ({"callees": {"loop.body": {"steps": [], "more": 1}}}, MalformedInputError, "unknown field"),
        ({"colour": "red"}, MalformedInputError, "unknown field `colour`"),
        ({"lowtide_plan": 2}, MalformedInputError, "not a valid plan file"),
        ({"status": "splendid"}, MalformedInputError, "status"),
    ],
)
def test_a_wrong_plan_file_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    graph, document, path = _document(tmp_path)
    path.write_text(json.dumps({**document, **change}))
    with pytest.raises(error, match=message) as caught:
        read_plan_file(path, graph)
    assert type(caught.value) is error
    assert str(caught.value).startswith(str(path))


def test_a_plan_that_says_it_is_infeasible_may_exceed_the_capacity(tmp_path: Path) -> None:
    graph, document, path = _document(tmp_path)
    space = replace(graph.spaces[0], capacity_bytes=300)
    tight = replace(graph, spaces=(space, graph.spaces[1]))
    path.write_text(json.dumps({**document, "graph": tight.fingerprint}))
    with pytest.raises(VerificationError, match="needs 612 bytes"):
        read_plan_file(path, tight)
    path.write_text(json.dumps({**document, "graph": tight.fingerprint, "status": "infeasible"}))
    assert read_plan_file(path, tight).status == "infeasible"


def test_two_different_plans_for_one_callee_cannot_be_written(tmp_path: Path) -> None:
    graph = random_graph(seed=0, n_ops=1)
    seeds = iter(range(10_000))
    while not all(name in graph.callees[0] for name in ("body", "outer")):
        graph = random_graph(seed=next(seeds), n_ops=1)
    body, outer = graph.subgraphs["body"], graph.subgraphs["outer"]
    longer = Plan.from_steps(body, [*Plan.baseline(body).steps(), *Plan.baseline(body).steps()])
    inner = replace(Plan.baseline(outer), callees={"body": longer})
    plan = replace(Plan.baseline(graph), callees={"body": Plan.baseline(body), "outer": inner})
    with pytest.raises(UsageError, match="two plans for callee 'body'"):
        write_plan_file(plan, tmp_path / "p.plan.json", graph)
    assert not list(tmp_path.iterdir())
