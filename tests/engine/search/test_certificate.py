"""Certificates show only true claims, and contradictions are refused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from lowtide import minimize
from lowtide.core.errors import LowtideError, ProofError, VerificationError
from lowtide.engine.graph import Graph, write_graph_file
from lowtide.engine.plan import Plan, verify, write_plan_file
from lowtide.engine.planning.result import Result
from lowtide.engine.search import Proof, RefutedBudget, check_certificate, write_proof_file
from lowtide.engine.search.proof import CutFlow, Moves
from tests.cli.conftest import Command, lowtide
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_graphs import random_graph

__all__ = ["lowtide"]  # the fixture
SEEDS = range(23)
PER_GRAPH = 80


def certified(graph: Graph, **settings: Any) -> tuple[Result, Proof]:
    """Return a plan of least peak with the proof of its bound."""
    result = minimize(graph, **settings)
    assert result.proof is not None
    return result, result.proof


def forged_flow(flow: CutFlow, delta: int, draw: Random) -> CutFlow:
    """Return the flow with a move changed, dropped, added or redirected, or with unequal columns."""
    kind = draw.choice(["uses", "dependencies"])
    moves: Moves = getattr(flow, kind)
    sources, targets, moved = (list(column) for column in (moves.sources, moves.targets, moves.bytes))
    if not moved or draw.random() < 0.2:
        sources.append(draw.randrange(9))
        targets.append(draw.randrange(9))
        moved.append(draw.choice([abs(delta), 2**62, 2**63]))
    place = draw.randrange(len(moved))
    match draw.randrange(5):
        case 0:
            moved[place] = max(0, moved[place] + delta)
        case 1:
            targets[place] = draw.randrange(2 * (1 + max(targets)))
        case 2:
            sources[place] = draw.randrange(2 * (1 + max(sources)))
        case 3:
            moved.pop(place)
        case _:
            del sources[place], targets[place], moved[place]
    forged = Moves(sources=tuple(sources), targets=tuple(targets), bytes=tuple(moved))
    return msgspec.structs.replace(flow, **{kind: forged})


def forged(plan: Plan, proof: Proof, draw: Random) -> tuple[Plan, Proof]:
    """Return the pair with one to three statements changed."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        delta = draw.choice([-1, 1, 8, 40])
        space = proof.spaces[0]
        claims = list(plan.claims)
        number = draw.randrange(len(claims))
        claim = claims[number]
        higher: dict[str, Any] = {"at_least": max(0, claim.at_least + delta)}
        changes: dict[str, Any] = draw.choice([higher, higher, {"in_place": not claim.in_place}, {"over": "reruns"}])
        edits: list[dict[str, Any]] = [
            {"bound_bytes": space.bound_bytes + delta},
            {"cut_bytes": max(0, space.cut_bytes + delta), "bound_bytes": space.bound_bytes + delta},
            {"before": space.before[1:]},
            {"flow": None},
            {"tree_bytes": space.bound_bytes + delta, "bound_bytes": space.bound_bytes + delta},
            {
                "refuted": (RefutedBudget(budget_bytes=space.bound_bytes, at_least_bytes=space.bound_bytes + 1),),
                "bound_bytes": space.bound_bytes + 1,
            },
        ]
        if space.flow is not None:
            flow = forged_flow(space.flow, delta, draw)
            cut = max(0, space.cut_bytes + draw.choice([0, delta]))
            edits += [{"flow": flow}, {"flow": flow, "cut_bytes": cut, "bound_bytes": max(cut, space.bound_bytes)}]
        match draw.randrange(5):
            case 0:
                claims[number] = replace(claim, **changes)
                plan = replace(plan, claims=tuple(claims))
            case 1:
                bounds = {name: least + abs(delta) for name, least in plan.lower_bound_bytes.items()}
                plan = replace(plan, lower_bound_bytes=bounds, status=draw.choice(["optimal", "feasible"]))
            case 2:  # claims, plain bounds and proof agree on a wrong figure
                bounds = {name: least + abs(delta) for name, least in plan.lower_bound_bytes.items()}
                claims = [
                    replace(each, at_least=bounds.get(each.space or "", 0)) if each.figure == "peak" else each
                    for each in claims
                ]
                plan = replace(plan, lower_bound_bytes=bounds, claims=tuple(claims))
                bound = space.bound_bytes + abs(delta)
                refuted = (RefutedBudget(budget_bytes=bound - 1, at_least_bytes=bound),)
                first = msgspec.structs.replace(space, bound_bytes=bound, refuted=refuted)
                proof = msgspec.structs.replace(proof, spaces=(first, *proof.spaces[1:]))
            case 3:
                first = msgspec.structs.replace(space, **draw.choice(edits))
                proof = msgspec.structs.replace(proof, spaces=(first, *proof.spaces[1:]))
            case _:
                proof = msgspec.structs.replace(proof, in_place=not proof.in_place)
    return plan, proof


def shown(graph: Graph, plan: Plan, proof: Proof | None) -> Iterator[tuple[str, bool, int]]:
    """Yield the shown peaks over all orders as (space, in_place, bytes)."""
    claims = check_certificate(graph, plan, proof).claims
    for checked in claims:
        if checked.is_shown and checked.claim.figure == "peak":
            yield checked.claim.space or "", checked.claim.in_place, int(checked.claim.at_least)


@pytest.mark.parametrize("seed", SEEDS)
def test_forgeries_show_nothing_false(seed: int) -> None:
    """Each of 1,840 forgeries over 23 graphs is refused, or shows only claims that hold for every order."""
    graph = random_graph(seed)
    result, proof = certified(graph)
    least = {
        (space.name, in_place): least_peak(problem_of(graph, in_place=in_place), number)
        for number, space in enumerate(graph.spaces)
        for in_place in (False, True)
    }
    draw = Random(seed)
    refused = 0
    for _ in range(PER_GRAPH):
        plan, other = forged(result.plan, proof, draw)
        try:
            verify(graph, plan, check_capacity=False)
            for space, in_place, at_least in shown(graph, plan, other):
                assert at_least <= least[space, in_place]
        except LowtideError:
            refused += 1
    assert refused > PER_GRAPH // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_every_claim_of_a_peak_is_shown_by_its_own_proof(seed: int) -> None:
    graph = random_graph(seed)
    result, proof = certified(graph)
    claims = check_certificate(graph, result.plan, proof).claims
    assert all(checked.is_shown for checked in claims if checked.claim.figure == "peak")
    assert {claim.over for claim in result.claims} <= {"orders", "placements"}


def test_floors_of_reruns_are_shown_without_a_proof_and_bounds_of_a_search_are_not() -> None:
    for seed in SEEDS:
        graph = random_graph(seed)
        result = minimize(graph, budget="60%", allow=("reorder", "share", "recompute"))
        claims = check_certificate(graph, result.plan, None).claims
        for checked in claims:
            if checked.claim.over == "reruns":
                assert checked.is_shown or checked.claim.shown_by == "search"


def test_a_plan_and_a_proof_of_different_settings_are_refused() -> None:
    graph = next(graph for graph in map(random_graph, range(100)) if len(minimize(graph).plan.pairs.values))
    result, _ = certified(graph)
    _, without = certified(graph, in_place=False)
    with pytest.raises(ProofError, match="without in-place pairs"):
        check_certificate(graph, result.plan, without)


def test_a_plan_below_the_bound_of_its_proof_is_refused() -> None:
    """The forged refutation is one byte above the peak, so the plan contradicts it."""
    graph = random_graph(3)
    result, proof = certified(graph)
    space = proof.spaces[0]
    bound = result.peak_bytes[space.space] + 1
    refuted = (*space.refuted, RefutedBudget(budget_bytes=bound - 1, at_least_bytes=bound))
    first = msgspec.structs.replace(space, bound_bytes=bound, refuted=refuted)
    forged_proof = msgspec.structs.replace(proof, spaces=(first, *proof.spaces[1:]))
    with pytest.raises(ProofError):
        check_certificate(graph, replace(result.plan, claims=()), forged_proof)


def test_an_optimal_plan_above_its_bound_is_refused() -> None:
    plans = ((graph, minimize(graph, scheduler="given").plan) for graph in map(random_graph, range(100)))
    graph, plan = next(each for each in plans if each[1].peak_bytes != each[1].lower_bound_bytes)
    with pytest.raises(VerificationError, match="optimal"):
        verify(graph, replace(plan, status="optimal"))


def test_an_optimal_plan_with_a_bound_of_another_class_is_refused() -> None:
    """The plan uses in-place pairs, but its bound is for plans without them."""
    graph = next(graph for graph in map(random_graph, range(100)) if len(minimize(graph).plan.pairs.values))
    plan = minimize(graph).plan
    claims = tuple(replace(claim, in_place=False) if claim.figure == "peak" else claim for claim in plan.claims)
    verify(graph, plan)
    verify(graph, replace(plan, status="feasible", claims=claims))
    with pytest.raises(VerificationError, match="optimal"):
        verify(graph, replace(plan, status="optimal", claims=claims))


def test_strict_is_met_with_a_proof_and_fails_without(lowtide: Command, tmp_path: Path) -> None:
    graphs = (random_graph(seed, limited=False) for seed in range(100))
    graph = next(graph for graph in graphs if any(claim.shown_by == "search" for claim in minimize(graph).claims))
    result, proof = certified(graph)
    model, plan, shows = tmp_path / "g.graph.json", tmp_path / "p.plan.json", tmp_path / "p.proof.json"
    write_graph_file(graph, model)
    write_plan_file(result.plan, plan, graph)
    write_proof_file(proof, shows)
    assert lowtide("verify", plan, model).code == 0
    assert "claimed, not proven here" in " ".join(lowtide("verify", plan, model).stdout.split())
    assert lowtide("verify", plan, model, "--strict").code == 1
    done = lowtide("verify", plan, model, "--proof", shows, "--json")
    peaks = [claim for claim in json.loads(done.stdout)["claims"] if claim["figure"] == "peak"]
    assert [claim["shown"] for claim in peaks] == [True] * len(graph.spaces)


def edited_plan(tmp_path: Path, change: Any) -> tuple[Path, Path, Path]:
    """Write a model, its plan, edited by hand, and its proof."""
    graph = random_graph(15, limited=False)
    result, proof = certified(graph)
    model, plan, shows = tmp_path / "g.graph.json", tmp_path / "p.plan.json", tmp_path / "p.proof.json"
    write_graph_file(graph, model)
    write_plan_file(result.plan, plan, graph)
    write_proof_file(proof, shows)
    fields = json.loads(plan.read_text())
    change(fields)
    plan.write_text(json.dumps(fields))
    return model, plan, shows


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (0, {"in_chunks": True}),
        (0, {"over": "placements"}),
        (0, {"shown_by": "packing"}),
        (0, {"shown_by": "needs"}),
        (0, {"base_order": "given"}),
        (1, {"over": "orders"}),
        (1, {"over": "reruns"}),
        (1, {"figure": "extra cost"}),
        (1, {"shown_by": "search"}),
    ],
    ids=str,
)
def test_a_claim_of_another_program_or_class_is_no_claim(
    lowtide: Command, tmp_path: Path, number: int, changes: dict[str, Any]
) -> None:
    """An arena bound holds for the placements of one plan, not for all orders."""
    model, plan, shows = edited_plan(tmp_path, lambda fields: fields["claims"][number].update(changes))
    done = lowtide("verify", plan, model, "--proof", shows)
    assert (done.code, done.stdout) == (1, "")
    assert "claim" in done.stderr


def test_plain_bounds_without_claims_count_as_claims(lowtide: Command, tmp_path: Path) -> None:
    """Otherwise dropping the claims would bypass --strict."""
    model, plan, shows = edited_plan(tmp_path, lambda fields: fields.pop("claims"))
    assert lowtide("verify", plan, model, "--strict").code == 1
    assert lowtide("verify", plan, model, "--proof", shows, "--strict").code == 0
