"""Every verb on every kind of MODEL: what it prints, writes and exits with."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from lowtide import read_graph_file, read_plan_file, verify
from lowtide.engine.schedule import scheduler_names
from tests.cli.conftest import Command, Finished

INSPECT = ["peak_bytes", "persistent_bytes", "arena_bytes", "lower_bound_bytes", "holders", "unmodeled"]
PLAN = [
    "status",
    "baseline_peak_bytes",
    "peak_bytes",
    "arena_bytes",
    "lower_bound_bytes",
    "persistent_bytes",
    "extra_cost",
    "extra_cost_bound",
    "base_cost",
    "seconds",
]
MEASURED = ["measured_before_bytes", "measured_after_bytes", "outputs_equal"]
BY_SPACE = ("peak_bytes", "arena_bytes", "lower_bound_bytes", "persistent_bytes", "baseline_peak_bytes")


def result_of(done: Finished) -> dict[str, Any]:
    """Return the one JSON object on stdout, its byte figures checked to be ints per space."""
    assert done.code == 0, done.stderr
    assert done.complaints == []
    fields = json.loads(done.stdout)
    for key in BY_SPACE:
        if key in fields:
            assert all(type(count) is int for count in fields[key].values())
    return fields


@pytest.fixture(
    params=[
        "graph file",
        "ONNX file",
        "NetDef",
        "Inductor export",
        "HLO module",
        "GraphInterface",
        "exported program",
        "callable",
    ]
)
def model(request: pytest.FixtureRequest) -> list[object]:
    """A MODEL of every kind, with the options it needs."""
    match request.param:
        case "graph file":
            return [request.getfixturevalue("graph_file")]
        case "ONNX file":
            return [request.getfixturevalue("onnx_file"), "--dim", "batch=4"]
        case "NetDef":
            return [request.getfixturevalue("netdef_file")]
        case "Inductor export":
            return [request.getfixturevalue("inductor_export_file")]
        case "HLO module":
            return [request.getfixturevalue("hlo_file")]
        case "GraphInterface":
            return [f"{request.getfixturevalue('interfaces')}:interface"]
        case "exported program":
            return [request.getfixturevalue("exported_file")]
        case _:
            return [f"{request.getfixturevalue('programs')}:train"]


def test_inspect_has_the_promised_keys_for_every_kind_of_model(lowtide: Command, model: list[object]) -> None:
    fields = result_of(lowtide("inspect", *model, "--json"))
    assert set(INSPECT) <= set(fields)
    assert sum(holder["size_bytes"] for holder in fields["holders"]) == sum(fields["peak_bytes"].values()) > 0


def test_compare_has_a_row_for_every_order_for_every_kind_of_model(lowtide: Command, model: list[object]) -> None:
    fields = result_of(lowtide("compare", *model, "--json"))
    assert [row["scheduler"] for row in fields["rows"]] == list(scheduler_names())
    for row in fields["rows"]:
        assert set(row) == {"scheduler", "peak_bytes", "seconds"}
        assert all(row["peak_bytes"][space] >= least for space, least in fields["lower_bound_bytes"].items())


def test_plan_then_verify_then_apply_for_every_kind_of_model(
    lowtide: Command, model: list[object], tmp_path: Path
) -> None:
    plan = tmp_path / "made.plan.json.gz"
    fields = result_of(lowtide("plan", *model, "-o", plan, "--json"))
    assert set(PLAN) <= set(fields)
    assert not set(MEASURED) & set(fields)
    verified = result_of(lowtide("verify", plan, *model, "--json"))
    assert (verified["valid"], verified["peak_bytes"]) == (True, fields["peak_bytes"])
    again = tmp_path / "again.plan.json.gz"
    applied = result_of(lowtide("apply", plan, *model, "-o", again, "--json"))
    assert (applied["output"], applied["peak_bytes"]) == (str(again), fields["peak_bytes"])
    assert again.read_bytes() == plan.read_bytes()


def test_planning_twice_writes_the_same_bytes_for_every_kind_of_model(
    lowtide: Command, model: list[object], tmp_path: Path
) -> None:
    for name in ("one.plan.json", "two.plan.json"):
        assert lowtide("plan", *model, "-o", tmp_path / name).code == 0
    assert (tmp_path / "one.plan.json").read_bytes() == (tmp_path / "two.plan.json").read_bytes()


def test_every_result_has_a_page_for_people_too(lowtide: Command, model: list[object], tmp_path: Path) -> None:
    plan = tmp_path / "made.plan.json"
    for arguments in (["inspect"], ["compare"], ["plan", "-o", plan], ["verify", plan], ["apply", plan, "-o", plan]):
        done = lowtide(*arguments, *model)
        assert (done.code, done.complaints) == (0, [])
        assert "peak" in done.stdout
        assert "{" not in done.stdout


def test_optimize_measures_a_training_step_before_and_after(lowtide: Command, programs: str, tmp_path: Path) -> None:
    out = tmp_path / "step.plan.json"
    fields = result_of(lowtide("optimize", f"{programs}:train", "-o", out, "--measure", "--json"))
    assert {*PLAN, *MEASURED} <= set(fields)
    assert fields["outputs_equal"] is True
    assert fields["measured_after_bytes"] < fields["measured_before_bytes"]
    assert out.exists()


def test_optimize_writes_a_valid_onnx_model_and_measures_it(lowtide: Command, onnx_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    fields = result_of(lowtide("optimize", onnx_file, "-o", out, "--measure", "--dim", "batch=4", "--json"))
    assert {*PLAN, *MEASURED} <= set(fields)
    assert fields["outputs_equal"] is True
    # ONNX Runtime writes what it optimizes in its own order, which is the best one here already.
    assert sum(fields["peak_bytes"].values()) <= sum(fields["baseline_peak_bytes"].values())
    assert (fields["doubts"], [run["fallbacks"] for run in fields["runtime_runs"]]) == ([], [0, 0, 0])
    onnx.checker.check_model(onnx.load(out), full_check=True)
    # What runs has fewer nodes than what was given, and needs no more.
    planned = result_of(lowtide("inspect", out, "--dim", "batch=4", "--no-in-place", "--json"))
    given = result_of(lowtide("plan", onnx_file, "--dim", "batch=4", "--no-in-place", "--json"))
    assert planned["peak_bytes"]["device"] <= given["peak_bytes"]["device"]
    # Three figures apart: the file's order, the stock runtime's, and the plan's.
    by_runtime = planned["by_runtime"]
    assert by_runtime["file_bytes"] == planned["peak_bytes"]["device"] >= by_runtime["planned_bytes"]
    assert by_runtime["runtime_peaks"]["before_bytes"] >= by_runtime["planned_bytes"]
    assert "in lowtide's session" in lowtide("inspect", out, "--dim", "batch=4").stdout


def test_a_level_is_planned_and_said(lowtide: Command, onnx_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = lowtide("optimize", onnx_file, "-o", out, "--level", "basic", "--dim", "batch=4")
    assert done.code == 0
    assert "level            basic" in done.stdout
    assert "stock order" in done.stdout
    refused = lowtide("optimize", onnx_file, "-o", out, "--level", "most", "--dim", "batch=4")
    assert (refused.code, "extended" in refused.stderr) == (2, True)
    refused = lowtide("optimize", onnx_file, "-o", tmp_path / "out.plan.json", "--level", "basic", "--dim", "batch=4")
    assert (refused.code, "-o OUTPUT" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["out.graph.json", "out.graph.json.gz"])
def test_optimize_writes_the_reordered_graph_file(
    lowtide: Command, graph_file: Path, tmp_path: Path, name: str
) -> None:
    fields = result_of(lowtide("optimize", graph_file, "-o", tmp_path / name, "--json"))
    assert (fields["status"], fields["peak_bytes"]) == ("optimal", {"device": 1211})
    assert result_of(lowtide("inspect", tmp_path / name, "--json"))["peak_bytes"] == {"device": 1211}


def test_optimize_writes_the_export_of_inductor_in_the_best_order_and_cannot_measure_it(
    lowtide: Command, inductor_export_file: Path, tmp_path: Path
) -> None:
    written = tmp_path / "better.json"
    fields = result_of(lowtide("optimize", inductor_export_file, "-o", written, "--json"))
    assert fields["peak_bytes"] == {"device": 98_320}
    assert result_of(lowtide("inspect", written, "--json"))["peak_bytes"] == fields["peak_bytes"]
    refused = lowtide("optimize", inductor_export_file, "-o", tmp_path / "not.json", "--measure")
    assert (refused.code, len(refused.complaints)) == (3, 1)
    assert not (tmp_path / "not.json").exists()  # it is said before anything is planned


def test_inspect_says_what_holds_memory_and_what_is_not_modeled(lowtide: Command, graph_file: Path) -> None:
    fields = result_of(lowtide("inspect", graph_file, "--json"))
    assert (fields["peak_bytes"], fields["persistent_bytes"]) == ({"device": 2210}, {"device": 5000})
    assert fields["unmodeled"] == ["nothing is known about the weather"]
    assert fields["holders"][0] == {
        "space": "device",
        "name": "big1",
        "size_bytes": 1100,
        "lifetime": "intermediate",
        "op": "grow1",
        "first_use": "grow1",
        "last_use": "shrink1",
        "kept_alive_by": ["shrink1"],
        "kind": "grow",
        "made_at": None,
    }


def test_a_saved_plan_can_be_loaded_and_verified_in_python(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    lowtide("plan", graph_file, "-o", tmp_path / "p.plan.json")
    graph = read_graph_file(graph_file)
    plan = read_plan_file(tmp_path / "p.plan.json", graph)
    verify(graph, plan)
    assert plan.status == "optimal"


def test_means_and_orders_can_be_chosen(lowtide: Command, graph_file: Path) -> None:
    def peak(*options: str) -> int:
        return result_of(lowtide("plan", graph_file, *options, "--json"))["peak_bytes"]["device"]

    assert peak() == peak("--scheduler", "xla-dfs") == peak("--allow", "reorder") == 1211
    assert peak("--allow", "share") == peak("--allow", "") == peak("--scheduler", "given") == 2210


@pytest.mark.parametrize(("budget", "code"), [("6211B", 0), ("6210B", 1), ("60%", 0), ("10%", 1)])
def test_a_budget_decides_the_exit_code_and_the_best_plan_is_written_in_either_case(
    lowtide: Command, graph_file: Path, tmp_path: Path, budget: str, code: int
) -> None:
    """60% are 1326 bytes: the plan that moves the fewest ops will do, it need not be the one of least peak."""
    for verb in ("plan", "optimize"):
        out = tmp_path / f"{verb}.plan.json"
        done = lowtide(verb, graph_file, "-o", out, "--budget", budget, "--json")
        assert done.code == code
        fields = json.loads(done.stdout)
        assert (fields["status"] == "infeasible") == (code == 1) == ("op 'shrink1'" in str(fields["shortfall"]))
        assert read_plan_file(out, read_graph_file(graph_file)).peak_bytes == fields["peak_bytes"]
        peak, moved = (1311, 1) if budget == "60%" else (1211, 2)
        assert (fields["peak_bytes"], fields["moved_ops"]) == ({"device": peak}, moved)
    text = lowtide("plan", graph_file, "--budget", budget).stdout
    assert ("misses the budget" in text) == (code == 1)
    assert ("fits the budget" in text) == (code == 0)


def test_a_plan_that_calls_itself_infeasible_is_refused_unless_that_is_allowed(
    lowtide: Command, graph_file: Path, tmp_path: Path
) -> None:
    plan, applied = tmp_path / "over.plan.json", tmp_path / "applied.graph.json"
    assert lowtide("plan", graph_file, "-o", plan, "--budget", "6000B").code == 1
    for arguments in (["verify", plan, graph_file], ["apply", plan, graph_file, "-o", applied]):
        refused = lowtide(*arguments)
        assert (refused.code, refused.stdout, len(refused.complaints)) == (1, "", 1)
        assert "infeasible" in refused.complaints[0]
        assert "--allow-over-budget" in refused.complaints[0]
        assert not applied.exists()
    for arguments in (["verify", plan, graph_file], ["apply", plan, graph_file, "-o", applied]):
        assert result_of(lowtide(*arguments, "--allow-over-budget", "--json"))["peak_bytes"] == {"device": 1211}
    assert applied.exists()


def test_optimize_runs_ops_of_a_training_step_again_to_fit_a_budget(lowtide: Command, programs: Path) -> None:
    arguments = [f"{programs}:deep", "--budget", "50%", "--allow", "reorder,share,recompute", "--json", "--measure"]
    fields = result_of(lowtide("optimize", *arguments))
    assert fields["outputs_equal"]
    assert fields["reruns"] > 0
    assert 0 < fields["extra_cost_bound"] <= fields["extra_cost"] < 0.2 * fields["base_cost"]
    assert fields["measured_after_bytes"] <= 0.51 * fields["measured_before_bytes"]


def test_a_curve_has_budgets_from_the_peak_to_the_floor(lowtide: Command, graph_file: Path) -> None:
    done = lowtide("plan", graph_file, "--curve", "--json")
    fields = json.loads(done.stdout)
    assert (done.code, done.complaints) == (0, [])
    assert fields["points"][0]["extra_cost"] == 0
    keys = {"budget_bytes", "peak_bytes", "status", "extra_cost", "extra_cost_bound", "solver_bound", "shortfall"}
    assert keys == set(fields["points"][0])
    assert "knee" in lowtide("plan", graph_file, "--curve").stdout or fields["knee"] is None


def test_a_curve_takes_no_budget_of_its_own(lowtide: Command, graph_file: Path) -> None:
    done = lowtide("plan", graph_file, "--curve", "--budget", "70%")
    assert (done.code, len(done.complaints)) == (2, 1)
