"""The cache of plans: a known program is not planned again, and a damaged entry is."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

import lowtide
from lowtide.engine.graph import Graph
from lowtide.engine.planning import find_plan as planning
from lowtide.engine.planning import plan_cache
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings

SETTINGS = PlanSettings(budget="60%", effort="fast", techniques=frozenset({"reorder", "share", "recompute"}))


@pytest.fixture(name="graph", scope="module")
def graph_fixture() -> Graph:
    return lowtide.read(Path(__file__).parents[3] / "benchmarks" / "graphs" / "unet_plain_b4.step.graph.json.gz")


@pytest.fixture(name="folder", autouse=True)
def folder_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a folder for the cache, which does not exist yet, and keep plans that took no time."""
    folder = tmp_path / "plans"
    monkeypatch.setenv(plan_cache.VARIABLE, str(folder))
    monkeypatch.setattr(plan_cache, "_LEAST_SECONDS", 0.0)
    return folder


def _same(one: Result, other: Result) -> bool:
    names = [field.name for field in fields(Result) if field.name not in {"seconds", "plan"}]
    plans = one.plan.order().tolist() == other.plan.order().tolist() and one.plan.claims == other.plan.claims
    return plans and all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.mark.parametrize("budget", ["60%", "1%"])
def test_the_second_result_is_the_first_one_without_planning(
    graph: Graph, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, budget=budget)
    first = find_plan(graph, settings)
    monkeypatch.setattr(planning, "trade", lambda *_: pytest.fail("the program was planned again"))
    assert _same(find_plan(graph, settings), first)


@pytest.mark.parametrize(
    "other", [{"budget": "70%"}, {"effort": "balanced"}, {"prove": True}, {"costs": "eager"}, {"addresses": False}]
)
def test_other_settings_are_planned_anew(graph: Graph, other: dict[str, object], folder: Path) -> None:
    find_plan(graph, SETTINGS)
    before = len(list(folder.iterdir()))
    find_plan(graph, replace(SETTINGS, **other))  # type: ignore[arg-type]
    assert len(list(folder.iterdir())) == 2 * before


@pytest.mark.parametrize("ending", [".plan.json.gz", ".result.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f\x8bbroken", b"[1, 2]"])
def test_a_damaged_entry_is_planned_again(graph: Graph, folder: Path, ending: str, content: bytes) -> None:
    first = find_plan(graph, SETTINGS)
    (path,) = (path for path in folder.iterdir() if path.name.endswith(ending))
    path.write_bytes(content)
    assert _same(find_plan(graph, SETTINGS), first)
    assert path.read_bytes() != content


def test_a_wrong_plan_is_never_returned(graph: Graph, folder: Path) -> None:
    """The plan of another graph fits no fingerprint, and is planned again."""
    other = lowtide.read(Path(__file__).parents[3] / "benchmarks" / "graphs" / "budget_unet.train.graph.json.gz")
    first = find_plan(graph, SETTINGS)
    (own,) = (path for path in folder.iterdir() if path.name.endswith(".plan.json.gz"))
    find_plan(other, SETTINGS)
    (strange,) = (path for path in folder.iterdir() if path.name.endswith(".plan.json.gz") and path != own)
    own.write_bytes(strange.read_bytes())
    assert _same(find_plan(graph, SETTINGS), first)


def test_the_plans_used_last_stay_within_the_size(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_plan(graph, SETTINGS)
    one = sum(path.stat().st_size for path in plan_cache.cache_files())
    monkeypatch.setattr(plan_cache, "MOST_BYTES", 2 * one)
    for percent in range(61, 66):
        find_plan(graph, replace(SETTINGS, budget=f"{percent}%"))
    assert 0 < sum(path.stat().st_size for path in folder.iterdir()) <= 2 * one
    assert plan_cache.clear_cache() > 0
    assert not list(folder.iterdir())


def test_nothing_is_kept_if_the_cache_is_off(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plan_cache.VARIABLE, "off")
    find_plan(graph, SETTINGS)
    assert not folder.exists()
    assert plan_cache.cache_files() == []


def test_a_folder_that_cannot_be_written_is_ignored(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(plan_cache.VARIABLE, str(tmp_path / "file"))
    assert find_plan(graph, SETTINGS).shortfall is None
