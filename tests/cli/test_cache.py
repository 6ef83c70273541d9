"""`lowtide cache`: shows and deletes the plans that the command keeps."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command

GRAPH = Path(__file__).parents[2] / "benchmarks" / "graphs" / "budget_unet.train.graph.json.gz"
BUDGET = ["--budget", "30%", "--allow", "reorder,share,recompute"]


def test_a_plan_is_kept_used_again_and_deleted(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "plans"))
    assert lowtide("cache").stdout.startswith("0 plans, 0 B in")
    first, second = (lowtide("plan", GRAPH, *BUDGET, "-o", tmp_path / f"{k}.plan.json") for k in range(2))
    assert (first.code, second.code) == (0, 0)
    assert (tmp_path / "0.plan.json").read_bytes() == (tmp_path / "1.plan.json").read_bytes()
    assert lowtide("cache").stdout.startswith("1 plans, ")
    assert "deleted in" in lowtide("cache", "--clear").stdout
    assert lowtide("cache").stdout.startswith("0 plans, 0 B in")


def test_an_unused_cache_is_named(lowtide: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", "off")
    done = lowtide("cache", "--clear")
    assert (done.code, done.stdout.strip()) == (0, "the plan cache is off (LOWTIDE_CACHE)")
