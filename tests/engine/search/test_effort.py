"""The search effort: its selection, and its use by the search."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from lowtide import minimize
from lowtide.core.effort import DEFAULT_EFFORT, SEARCH_EFFORTS, SearchEffort
from lowtide.core.errors import UsageError
from lowtide.engine.graph import write_graph_file
from tests.cli.conftest import Command, lowtide
from tests.oracles.random_graphs import random_graph

__all__ = ["lowtide"]  # the fixture
GRAPH = random_graph(15, limited=False)
"""Its cut bound is not tight, so only exact search can close the gap."""


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the work of effort "fast" to zero."""
    monkeypatch.setitem(SEARCH_EFFORTS, "fast", SearchEffort(cut_work=0, fit_work=0, fit_ops=0))


def test_more_effort_allows_for_more_work_in_every_respect() -> None:
    ranked = list(SEARCH_EFFORTS.values())
    for less, more in pairwise(ranked):
        assert less.cut_work < more.cut_work
        assert less.fit_work < more.fit_work
        assert less.fit_ops < more.fit_ops
    assert DEFAULT_EFFORT in SEARCH_EFFORTS


@pytest.mark.usefixtures("no_work")
def test_an_effort_without_work_proves_less_than_the_default() -> None:
    assert minimize(GRAPH).status == "optimal"
    assert minimize(GRAPH, effort="fast").status == "feasible"


@pytest.mark.usefixtures("no_work")
def test_the_command_line_passes_the_effort_on(tmp_path: Path, lowtide: Command) -> None:
    path = tmp_path / "g.graph.json"
    write_graph_file(GRAPH, path)
    statuses = [
        json.loads(lowtide("plan", path, "--json", "--effort", name).stdout)["status"] for name in SEARCH_EFFORTS
    ]
    assert statuses == ["feasible", "optimal", "optimal"]
    bounds = [
        json.loads(lowtide("compare", path, "--json", "--effort", name).stdout)["lower_bound_bytes"]
        for name in SEARCH_EFFORTS
    ]
    assert sum(bounds[0].values()) < sum(bounds[1].values())


def test_an_unknown_effort_is_refused_in_one_line(tmp_path: Path, lowtide: Command) -> None:
    with pytest.raises(UsageError, match="unknown effort 'heroic'; choose one of fast, balanced, max"):
        minimize(GRAPH, effort="heroic")  # pyright: ignore[reportArgumentType]
    path = tmp_path / "g.graph.json"
    write_graph_file(GRAPH, path)
    assert lowtide("plan", path, "--effort", "heroic").code == 2
