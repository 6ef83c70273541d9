"""True proofs are confirmed by the independent checker, false ones are refused."""

import ast
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide import minimize, read_graph_file
from lowtide.core.errors import FingerprintError, InputError, LowtideError, MalformedInputError, ProofError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, write_graph_file
from lowtide.engine.schedule import make_candidate
from lowtide.engine.search import Proof, RefutedBudget, check_proof, plain_max_flow, read_proof_file, write_proof_file
from lowtide.engine.search.check_cut import cut_of, least_by_flow
from lowtide.engine.search.plain_orders import plain_tree_peak
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof import CutFlow, Moves
from tests.cli.conftest import Command, lowtide
from tests.examples import examples
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_graphs import random_graph
from tests.oracles.random_trees import random_forest, random_tree
from tests.strategies import graphs

__all__ = ["lowtide"]  # the fixture
SOURCE = Path(__file__).parents[3] / "src/lowtide/engine/search"
PLAIN = sorted([*SOURCE.glob("check_*.py"), *SOURCE.glob("plain_*.py")])
SAMPLES = sorted((Path(__file__).parents[2] / "data/graphs").glob("*.graph.json.gz"))


def proof_of(graph: Graph, *, in_place: bool = True) -> Proof:
    """Return the proof of the search."""
    solved = make_candidate("search", graph, in_place=in_place).solved
    assert solved is not None
    return solved.logged_proof


def confirmed(graph: Graph, proof: Proof) -> dict[str, int]:
    """Return the bounds of a proof, which must all be confirmed."""
    checked = check_proof(graph, proof)
    assert not any(bound.not_rechecked for bound in checked)
    return {bound.space: bound.confirmed_bytes for bound in checked}


def with_space(proof: Proof, **changes: object) -> Proof:
    """Return the proof with its first memory space changed."""
    first, *others = proof.spaces
    return msgspec.structs.replace(proof, spaces=(msgspec.structs.replace(first, **changes), *others))


@examples(200)
@given(st.one_of(graphs(9), st.integers(0, 10**6).map(random_graph)), st.booleans())
def test_bounds_of_the_search_are_confirmed_in_every_memory_space(graph: Graph, in_place: bool) -> None:
    candidate = make_candidate("search", graph, in_place=in_place)
    assert candidate.solved is not None
    proof = candidate.solved.logged_proof
    bounds = {bound.space: bound.peak_bytes for bound in candidate.bounds}
    assert proof.bound_bytes == confirmed(graph, proof) == bounds


@examples(200)
@given(graphs(8, callees=False), st.booleans(), st.data())
def test_a_bound_above_the_least_peak_or_off_its_own_steps_is_refused(
    graph: Graph, in_place: bool, data: st.DataObject
) -> None:
    proof = proof_of(graph, in_place=in_place)
    space = proof.spaces[0]
    shift = data.draw(st.sampled_from([-2, -1, 1, 2]))
    assume(space.cut_bytes + shift >= 0)
    for changes in (
        {"bound_bytes": max(0, space.bound_bytes + shift)},
        {"cut_bytes": space.cut_bytes + shift},
        {"cut_bytes": space.cut_bytes + shift, "bound_bytes": max(space.cut_bytes + shift, space.bound_bytes)},
    ):
        if all(getattr(space, name) == value for name, value in changes.items()):
            continue
        with pytest.raises(ProofError):
            check_proof(graph, with_space(proof, **changes))
    least = least_peak(problem_of(graph, in_place=in_place))
    with pytest.raises(ProofError, match="no tree or series-parallel graph with an optimal peak of"):
        check_proof(graph, with_space(proof, tree_bytes=least + 1, bound_bytes=max(least + 1, space.bound_bytes)))
    beyond = RefutedBudget(budget_bytes=least, at_least_bytes=least + 1)
    with pytest.raises(ProofError, match="some order needs less than"):
        check_proof(graph, with_space(proof, refuted=(beyond,), bound_bytes=least + 1))


@examples(200)
@given(graphs(9, callees=False), st.booleans(), st.data())
def test_another_op_or_another_set_is_refused_unless_it_shows_the_same(
    graph: Graph, in_place: bool, data: st.DataObject
) -> None:
    assume(graph.n_ops > 1)
    proof = proof_of(graph, in_place=in_place)
    other = data.draw(st.integers(0, graph.n_ops - 1))
    before = data.draw(st.sets(st.integers(0, graph.n_ops - 1)).map(lambda ops: tuple(sorted(ops))))
    problem = problem_of(graph, in_place=in_place)
    for op, ran in ((other, proof.spaces[0].before), (proof.spaces[0].op, before)):
        tampered = with_space(proof, op=op, before=ran)
        try:
            check_proof(graph, tampered)
        except ProofError:
            continue
        assert tampered.spaces[0].cut_bytes <= least_peak(problem)
        assert op is None or set(graph.structure.predecessors[op].tolist()) <= set(ran)


@examples(300)
@given(graphs(9, callees=False), st.booleans(), st.data())
def test_no_flow_shows_more_than_an_op_needs(graph: Graph, in_place: bool, data: st.DataObject) -> None:
    """Moves are added to and removed from a true flow, over existing and other pairs."""
    space = proof_of(graph, in_place=in_place).spaces[0]
    assume(space.op is not None and space.flow is not None)
    assert space.op is not None
    assert space.flow is not None
    program = PlainProgram(graph, problem_of(graph, in_place=in_place).transient, in_place, 0)
    cut = cut_of(program, space.op)
    assert least_by_flow(graph.structure, cut, space.flow) == space.cut_bytes
    uses = list(zip(cut.used.tolist(), cut.users.tolist(), strict=True))
    predecessors = graph.structure.predecessors
    waits = list(zip(predecessors.owners().tolist(), predecessors.values.tolist(), strict=True))
    size = st.integers(0, 2 * max(1, int(cut.sizes.max(initial=0))))
    kept = data.draw(st.booleans())

    def more(moves: Moves, pairs: list[tuple[int, int]]) -> Moves:
        known = st.sampled_from(pairs) if pairs else st.nothing()
        added = data.draw(
            st.lists(st.tuples(known | st.tuples(st.integers(0, 9), st.integers(0, 9)), size), max_size=3)
        )
        first = list(zip(moves.sources, moves.targets, moves.bytes, strict=True)) if kept else []
        rows = [*first, *((*pair, amount) for pair, amount in added)]
        return Moves(
            sources=tuple(row[0] for row in rows),
            targets=tuple(row[1] for row in rows),
            bytes=tuple(row[2] for row in rows),
        )

    forged = CutFlow(uses=more(space.flow.uses, uses), dependencies=more(space.flow.dependencies, waits))
    shown = least_by_flow(graph.structure, cut, forged)
    assert shown is None or shown <= space.cut_bytes


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_bounds_of_real_graphs_are_confirmed_and_tampered_ones_refused(path: Path) -> None:
    graph = read_graph_file(path)
    proof = proof_of(graph)
    space = proof.spaces[0]
    assert space.op is not None
    assert space.before
    assert space.flow is not None
    assert confirmed(graph, proof) == confirmed(graph, with_space(proof, flow=None)) == proof.bound_bytes
    for changes in (
        {"op": space.before[-1]},
        {"op": graph.n_ops},
        {"before": space.before[1:]},
        {"before": ()},
        {"before": (*space.before, graph.n_ops + 5)},
        {"cut_bytes": space.cut_bytes - 1},
        {"bound_bytes": space.bound_bytes + 1},
        {"op": None, "before": ()},
    ):
        with pytest.raises(ProofError, match="wrong proof for memory space 'device'"):
            check_proof(graph, with_space(proof, **changes))


def test_a_budget_too_large_to_recheck_is_listed_and_does_not_count() -> None:
    graph = random_graph(15, limited=False)
    proof = proof_of(graph)
    (space,) = proof.spaces
    assert space.refuted
    without = tuple(msgspec.structs.replace(budget, log=()) for budget in space.refuted)
    (checked,) = check_proof(graph, with_space(proof, refuted=without), max_examined=0)
    assert checked.confirmed_bytes == space.cut_bytes < space.bound_bytes
    assert max(checked.not_rechecked) == space.bound_bytes


def test_a_cut_with_too_large_a_flow_is_listed_and_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a cut that need no flow are still checked."""
    monkeypatch.setattr(plain_max_flow, "MOST_WORK", 10)
    graph = read_graph_file(SAMPLES[0])
    proof = with_space(proof_of(graph), flow=None)
    (space,) = proof.spaces
    assert space.op is not None
    (checked,) = check_proof(graph, proof)
    assert checked.confirmed_bytes < space.cut_bytes <= max(checked.not_rechecked)
    with pytest.raises(ProofError, match="wrong proof"):
        check_proof(graph, with_space(proof, cut_bytes=space.cut_bytes - 1))


def test_a_proof_for_another_graph_other_spaces_or_without_its_callees_is_refused() -> None:
    inner, outer = GraphBuilder("inner"), GraphBuilder("outer")
    inner.add_op("make", "make", writes=[inner.add_buffer("x", 7, Lifetime.OUTPUT)])
    outer.add_subgraph("inner", inner.build())
    outer.add_op("call", "custom", callees=["inner"])
    graph = outer.build()
    proof = proof_of(graph)
    assert confirmed(graph, proof) == {"device": 7}
    with pytest.raises(FingerprintError, match="not for graph"):
        check_proof(inner.build(), proof)
    with pytest.raises(ProofError, match="different memory spaces"):
        check_proof(graph, with_space(proof, space="attic"))
    with pytest.raises(ProofError, match="lacks callee 'inner'"):
        check_proof(graph, msgspec.structs.replace(proof, callees={}))


@examples(200)
@given(st.builds(random_forest, st.integers(0, 10**9), st.sampled_from(range(1, 12))), st.booleans())
def test_the_least_peak_of_a_tree_is_found_again_in_plain_python(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    program = PlainProgram(graph, problem.transient, in_place, 0)
    assert plain_tree_peak(program) == least_peak(problem)


def test_a_tree_of_a_thousand_ops_is_confirmed_to_the_byte() -> None:
    graph, _ = random_tree(0, 1000)
    proof = proof_of(graph)
    assert proof.spaces[0].tree_bytes == proof.spaces[0].bound_bytes
    assert confirmed(graph, proof) == proof.bound_bytes


def test_a_plan_of_any_order_comes_with_a_proof_of_its_bound() -> None:
    graph = random_graph(15, limited=False)
    for name in ("search", "lpmf", "given"):
        result = minimize(graph, scheduler=name)
        assert result.proof is not None
        assert confirmed(graph, result.proof) == result.lower_bound_bytes


def test_a_proof_file_round_trips_and_damage_gives_one_line(tmp_path: Path) -> None:
    graph = random_graph(15, limited=False)
    proof = proof_of(graph)
    path = tmp_path / "p.proof.json.gz"
    write_proof_file(proof, path)
    assert read_proof_file(path) == proof
    fields = json.loads(msgspec.json.encode(proof))
    damaged = tmp_path / "damaged.proof.json"
    for content in ("{", "[]", "{}", json.dumps({**fields, "more": 1}), json.dumps({**fields, "lowtide_proof": 2})):
        damaged.write_text(content)
        with pytest.raises(MalformedInputError, match="not a proof of lowtide"):
            read_proof_file(damaged)
    with pytest.raises(InputError):
        read_proof_file(tmp_path / "missing")


def test_the_command_line_writes_a_proof_and_checks_it(tmp_path: Path, lowtide: Command) -> None:
    graph = random_graph(15, limited=False)
    model, plan, proof = (tmp_path / name for name in ("g.graph.json", "p.plan.json", "p.proof.json"))
    write_graph_file(graph, model)
    planned = json.loads(lowtide("plan", model, "-o", plan, "--proof", proof, "--json").stdout)
    checked = json.loads(lowtide("verify", plan, model, "--proof", proof, "--json").stdout)
    assert checked["confirmed_bound_bytes"] == planned["lower_bound_bytes"]
    assert checked["not_rechecked"] == 0
    assert "no order needs less than" in " ".join(lowtide("verify", plan, model, "--proof", proof).stdout.split())
    space = read_proof_file(proof).spaces[0]
    write_proof_file(with_space(read_proof_file(proof), bound_bytes=space.bound_bytes + 1), proof)
    refused = lowtide("verify", plan, model, "--proof", proof)
    assert (refused.code, refused.stdout) == (ProofError.exit_code, "")
    assert "wrong proof" in refused.stderr


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_the_checker_shares_no_code_with_the_search(path: Path) -> None:
    """It may import graphs, errors, index spaces, the form of proofs, and its own modules."""
    allowed = (
        "lowtide.core.errors",
        "lowtide.engine.graph",
        "lowtide.core.index_spaces",
        "lowtide.engine.search.proof",
        "lowtide.engine.search.plain",
        "lowtide.engine.search.check",
    )
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowtide"):
            assert (node.module or "").startswith(allowed)
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("lowtide") for alias in node.names)


def test_a_wrong_proof_is_an_error_of_the_common_tree() -> None:
    assert issubclass(ProofError, LowtideError)
