"""On networks where Grappler's recomputation leaves its own estimate of the peak as it is, ours lowers that estimate.

The estimates are Grappler's, recorded by tests/oracles/estimate_with_grappler.py for the runs of our plans."""

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide import minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan, verify
from lowtide.engine.recompute.checkpointing import plan_of_runs
from lowtide.frameworks.tensorflow.grappler.levels import optimize_memory
from tests.oracles.estimate_with_grappler import BUDGET, MEANS
from tests.oracles.grappler_records import graph_of, hints_of, plannable_graph_of, records

ESTIMATES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "grappler_estimates.json").read_bytes()
)
_BATCH_NORM_NETWORKS = ("plain", "deep")


def _record_of(row: dict[str, Any]) -> dict[str, Any]:
    (record,) = (
        each for each in records("recomputation") if (each["name"], each["scope"]) == (row["name"], "gradients/")
    )
    return record


@pytest.mark.parametrize("row", ESTIMATES, ids=lambda row: row["name"])
def test_the_estimates_are_those_of_our_plans(row: dict[str, Any]) -> None:
    """When this fails, our plans have changed: record the estimates again."""
    record = _record_of(row)
    graph = graph_of(record)
    plan = optimize_memory(graph, "recomputation", hints=hints_of(record)).plan
    assert [graph.op_names[op] for op in plan.order()] == row["runs"]
    assert record["peak_bytes"] == row["program"]


@pytest.mark.parametrize("row", ESTIMATES, ids=lambda row: row["name"])
def test_grapplers_estimate_of_our_plan_is_never_above_that_of_its_own_and_lower_where_batch_norms_can_go(
    row: dict[str, Any],
) -> None:
    assert row["grappler"] >= row["program"]
    assert row["ours"] <= 1.001 * row["grappler"]
    if row["name"] in _BATCH_NORM_NETWORKS:
        assert row["ours"] < 0.8 * row["program"]


@pytest.mark.parametrize("row", ESTIMATES, ids=lambda row: row["name"])
def test_within_a_budget_grapplers_estimate_falls_on_every_network_and_plans_are_no_worse_than_the_recorded_ones(
    row: dict[str, Any],
) -> None:
    graph = plannable_graph_of(_record_of(row))
    ops = {name: op for op, name in enumerate(graph.op_names)}
    recorded = plan_of_runs(graph, [ops[name] for name in row["runs_within"]])
    verify(graph, recorded, check_capacity=False)
    assert row["budget"] == BUDGET
    assert simulate(graph, recorded).peak_bytes["gpu"] <= 0.8 * simulate(graph, Plan.baseline(graph)).peak_bytes["gpu"]
    assert row["within"] <= 0.95 * min(row["program"], row["grappler"])
    today = minimize(graph, budget=BUDGET, allow=MEANS, in_place=False)
    assert today.shortfall is None
    assert today.extra_cost / today.base_cost <= 1.01 * row["extra_cost"] + 1e-6
