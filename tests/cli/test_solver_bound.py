"""Bounds that only the solver claims, and the proof of an extra cost, on the command line."""

import json
from pathlib import Path

import msgspec
import pytest

from lowtide import minimize, read
from lowtide.core.errors import ProofError
from lowtide.engine.search import read_proof_file, write_proof_file
from lowtide.reporting.planning import result_to_json, result_to_text
from tests.cli.conftest import Command
from tests.oracles.broken_solvers import always_impossible, break_solver, word_too_high

pytest.importorskip("highspy")

GRAPHS = Path(__file__).parents[2] / "benchmarks/graphs"
MODEL = GRAPHS / "budget_unet.train.graph.json.gz"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", "off")


def test_a_bound_that_only_the_solver_claims_is_marked_as_not_proven(
    lowtide: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_solver(monkeypatch, (word_too_high, None))
    planned = json.loads(lowtide("plan", MODEL, "--budget", "60%", "--json").stdout)
    assert planned["extra_cost_bound"] < planned["solver_bound"] <= planned["extra_cost"]
    (claim,) = (claim for claim in planned["claims"] if claim["figure"] == "extra cost")
    assert (claim["at_least"], claim["shown_by"]) == (planned["extra_cost_bound"], "duals")
    assert planned["status"] == "feasible"
    shown = " ".join(lowtide("plan", MODEL, "--budget", "60%").stdout.split())
    assert "% by the solver, not proven" in shown


def test_a_program_that_only_the_solver_finds_impossible_is_not_called_infeasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_solver(monkeypatch, (always_impossible, None))
    graph = read(GRAPHS / "unet_plain_b4.joint.graph.json.gz")
    result = minimize(graph, budget="34%", allow={"recompute"})
    fields = result_to_json(result)
    assert fields["solver_finds_none"]
    assert fields["status"] == "feasible"
    assert "not proven impossible" in (fields["shortfall"] or "")
    assert "unproven         the solver finds no plan that fits with first runs in order given" in result_to_text(
        result
    )


def test_verify_confirms_the_proof_of_an_extra_cost_without_the_solver(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, proof = tmp_path / "p.plan.json", tmp_path / "p.proof.json.gz"
    planned = json.loads(lowtide("plan", MODEL, "--budget", "60%", "-o", plan, "--proof", proof, "--json").stdout)
    monkeypatch.setattr("lowtide.engine.recompute.solver.is_available", lambda: False)
    checked = json.loads(lowtide("verify", plan, MODEL, "--proof", proof, "--strict", "--json").stdout)
    assert checked["confirmed_extra_cost"] == planned["extra_cost_bound"] > 0
    assert "costs less than" in " ".join(lowtide("verify", plan, MODEL, "--proof", proof).stdout.split())
    read = read_proof_file(proof)
    assert read.cost is not None
    assert read.cost.at_least is not None
    above = msgspec.structs.replace(read.cost, at_least=1.001 * read.cost.at_least)
    write_proof_file(msgspec.structs.replace(read, cost=above), proof)
    refused = lowtide("verify", plan, MODEL, "--proof", proof)
    assert (refused.code, refused.stdout) == (ProofError.exit_code, "")
    assert "wrong proof for the extra cost" in refused.stderr
