"""The bound from gathering the operands of an op."""

import pytest

from lowtide import minimize
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import with_host_space
from lowtide.engine.recompute import ComposeSettings, compose, least_possible
from lowtide.engine.recompute.floor import least_to_gather
from lowtide.engine.search.certificate import check_certificate
from lowtide.engine.search.plain_needs import needed_to_gather
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.skipping_graphs import skipping_graph
from tests.sentences import why
from tests.strategies import random_graph


@pytest.mark.parametrize("in_place", [False, True])
def test_no_plan_in_any_order_meets_a_budget_below_the_gathering_bound(in_place: bool) -> None:
    """Holds for all plans of random graphs with mutations, in-place pairs and several spaces."""
    higher = 0
    for seed in range(60):
        for graph in (skipping_graph(seed), random_graph(seed, 3 + seed % 4)):
            if graph.subgraphs:
                continue
            problem = problem_of(graph, in_place=in_place)
            least = least_to_gather(problem, 0).peak_bytes
            assert least_extra_cost(problem, least - 1, any_order=True) == float("inf")
            shown = needed_to_gather(graph, graph.spaces[0].name, in_place=in_place)
            assert shown >= least
            assert least_extra_cost(problem, shown - 1, any_order=True) == float("inf")
            higher += least > least_possible(problem, 0).peak_bytes
    assert higher > 0


def test_two_operands_are_resident_while_the_last_one_is_made() -> None:
    """An op that adds two buffers of 1 needs more than 3 bytes, because one was made from a buffer of 4."""
    graph = _sum_of_two(4)
    least = least_to_gather(Problem(graph), 0)
    assert (least.peak_bytes, least_possible(Problem(graph), 0).peak_bytes) == (6, 5)
    assert least.op is not None
    assert graph.op_names[least.op] == "sum"


def test_a_budget_below_the_gathering_bound_is_infeasible_at_once() -> None:
    """The result is infeasible, with a plan of low peak."""
    problem = Problem(_sum_of_two(4))
    result = compose(problem, [("given", problem.given_order())], 5, ComposeSettings(exact=False)).result
    assert (result.status, result.peak_bytes) == ("infeasible", 6)


def test_the_shortfall_names_the_op_and_the_claim_is_checked() -> None:
    """The shortfall names the op, and the claim over all orders and reruns needs no proof file."""
    graph = _sum_of_two(4)
    result = minimize(graph, budget="5 B", allow={"reorder", "recompute"}, effort="fast")
    assert result.status == "infeasible"
    assert "computing all operands of op 'sum' needs 6 B" in why(result.shortfall)
    claims = check_certificate(graph, result.plan, None).claims
    (peak,) = (checked for checked in claims if checked.claim.figure == "peak")
    assert (peak.claim.over, peak.claim.at_least, peak.is_shown) == ("reruns", 6, True)


def test_copies_may_need_less_than_gathering() -> None:
    """A claim over plans with copies does not count operands that wait for another one."""
    result = minimize(
        with_host_space(_sum_of_two(4), 1e9), budget="5 B", allow={"reorder", "recompute", "offload"}, effort="fast"
    )
    assert [(claim.over, claim.at_least) for claim in result.claims if claim.figure == "peak"] == [("copies", 5)]


def _sum_of_two(wide: int) -> Graph:
    builder = GraphBuilder("sum of two")
    seed = builder.add_buffer("seed", 0, Lifetime.INPUT)
    narrow: list[int] = []
    for side in ("left", "right"):
        source = builder.add_buffer(f"{side} source", wide, Lifetime.INTERMEDIATE)
        narrow.append(builder.add_buffer(side, 1, Lifetime.INTERMEDIATE))
        builder.add_op(f"make {side} source", "narrow", reads=[seed], writes=[source])
        builder.add_op(f"make {side}", "narrow", reads=[source], writes=[narrow[-1]])
    total = builder.add_buffer("total", 1, Lifetime.OUTPUT)
    builder.add_op("sum", "add", reads=narrow, writes=[total])
    return builder.build()
