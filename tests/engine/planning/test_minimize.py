"""The pipeline: what holds for every plan it returns, whatever the graph."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide import minimize
from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.schedule import scheduler_names
from lowtide.reporting.shortfall import describe_missed
from tests.engine.planning.graphs import diamond
from tests.examples import examples
from tests.oracles.naive_player import order_peaks, play, valid_orders
from tests.oracles.random_graphs import random_graph as limited_graph
from tests.sentences import why
from tests.strategies import graphs, random_graph

_MOST_ORDERS = 300
ORDERS = ("reorder", "share")


def _over_capacity(graph: Graph, peaks: dict[str, int]) -> int:
    held = graph.persistent_bytes()
    return sum(max(0, held[s.name] + peaks[s.name] - s.capacity_bytes) for s in graph.spaces if s.capacity_bytes)


def _graph_of_20_ops(seed: int) -> Graph:
    return random_graph(seed, 20)


def _pairs_taken(plan: Plan) -> int:
    return len(plan.pairs.values) + sum(map(_pairs_taken, plan.callees.values()))


@examples(120)
@given(st.one_of(graphs(max_ops=9), st.integers(0, 10**6).map(limited_graph)), st.booleans())
def test_a_plan_is_verified_never_worse_than_the_program_and_its_figures_are_those_of_the_simulator(
    graph: Graph, in_place: bool
) -> None:
    result = minimize(graph, in_place=in_place)
    before, after = simulate(graph, Plan.baseline(graph)).peak_bytes, simulate(graph, result.plan).peak_bytes
    verify(graph, result.plan, check_capacity=False)
    is_live = graph.lifetimes != Lifetime.PERSISTENT
    written = {buffer for op in range(graph.n_ops) for buffer in graph.op(op).writes}
    unwritten = sorted(set(range(graph.n_buffers)) - written)
    is_live[[each for each in unwritten if graph.lifetimes[each] == Lifetime.INTERMEDIATE]] = False
    has_buffers = bool((graph.sizes[is_live] > 0).any())
    assert bool(result.plan.addresses) == has_buffers
    assert (result.baseline_peak_bytes, result.peak_bytes) == (before, after)
    excess_before, excess_after = _over_capacity(graph, before), _over_capacity(graph, after)
    assert (excess_after, sum(after.values())) <= (excess_before, sum(before.values()))
    for space in after:
        assert result.lower_bound_bytes[space] <= after[space] <= result.arena_bytes[space]
    assert (result.status == "optimal") <= (dict(result.lower_bound_bytes) == after)
    assert result.persistent_bytes == graph.persistent_bytes()
    assert (result.shortfall is not None) == (excess_after > 0)
    assert (result.status, result.peak_bytes) == (result.plan.status, result.plan.peak_bytes)


@examples(100)
@given(graphs(max_ops=6), st.booleans())
def test_no_valid_order_beats_the_bound_and_none_beats_an_optimal_plan(graph: Graph, in_place: bool) -> None:
    """Callees of the drawn graphs have one valid order and no pairs, so that the naive player sees their least peak."""
    orders = list(islice(valid_orders(graph), _MOST_ORDERS + 1))
    assume(len(orders) <= _MOST_ORDERS)
    result = minimize(graph, in_place=in_place)
    peaks = [order_peaks(graph, order, in_place=in_place) for order in orders]
    for place, space in enumerate(result.peak_bytes):
        least = min(peak[place] for peak in peaks)
        assert result.lower_bound_bytes[space] <= least
        assert result.status != "optimal" or result.peak_bytes[space] == least
    assert tuple(result.peak_bytes.values()) == play(graph, list(result.plan.steps()))


@examples(100)
@given(graphs(max_ops=6), st.integers(0, 100))
def test_infeasible_is_said_only_when_no_valid_order_fits_and_fitting_programs_always_fit(
    graph: Graph, percent: int
) -> None:
    orders = list(islice(valid_orders(graph), _MOST_ORDERS + 1))
    assume(len(orders) <= _MOST_ORDERS)
    first = graph.spaces[0].name
    budget = simulate(graph, Plan.baseline(graph)).peak_bytes[first] * percent // 100
    result = minimize(graph, budget=f"{budget + graph.persistent_bytes()[first]} B", allow=ORDERS)
    least = min(order_peaks(graph, order, in_place=True)[0] for order in orders)
    assert (result.shortfall is None) == (result.peak_bytes[first] <= budget)
    if result.status == "infeasible":
        assert least > budget
        assert result.shortfall is not None
    if percent == 100:
        assert result.shortfall is None


@examples(50)
@given(graphs(max_ops=8))
def test_techniques_that_are_not_allowed_are_not_used(graph: Graph) -> None:
    program = list(range(graph.n_ops))
    assert _pairs_taken(minimize(graph, in_place=False).plan) == 0
    assert _pairs_taken(minimize(graph, allow={"reorder"}).plan) == 0
    assert minimize(graph, allow={"share"}).plan.order().tolist() == program
    unmodified = minimize(graph, allow=())
    assert list(unmodified.plan.steps()) == list(Plan.baseline(graph).steps())
    assert unmodified.peak_bytes == unmodified.baseline_peak_bytes


@examples(50)
@given(graphs(max_ops=8))
def test_allowing_more_never_gives_a_higher_peak(graph: Graph) -> None:
    total = {
        allowed: sum(minimize(graph, allow=allowed).peak_bytes.values())
        for allowed in ((), ("share",), ("reorder",), ("reorder", "share"))
    }
    assert total["reorder", "share"] <= min(total["reorder",], total["share",])
    assert max(total["reorder",], total["share",]) <= total[()]


@pytest.mark.parametrize("name", scheduler_names())
def test_one_order_asked_for_by_name_is_the_one_taken_unless_the_program_is_as_good(name: str) -> None:
    graph = diamond()
    result = minimize(graph, scheduler=name)
    assert result.scheduler in (name, "baseline")
    assert (result.scheduler == "baseline") == (result.peak_bytes == result.baseline_peak_bytes)


def test_branches_run_one_after_the_other_and_the_plan_is_optimal() -> None:
    result = minimize(diamond())
    assert (result.baseline_peak_bytes, result.peak_bytes) == ({"device": 2200}, {"device": 1211})
    assert (result.status, result.lower_bound_bytes, result.persistent_bytes) == (
        "optimal",
        {"device": 1211},
        {"device": 5000},
    )


@pytest.mark.parametrize("budget", ["6211 B", "6211b", "6.211kB", "55.05%"])
def test_a_budget_that_is_met_leaves_no_shortfall_persistent_bytes_counted_only_in_bytes(budget: str | int) -> None:
    assert minimize(diamond(), budget=budget, allow=ORDERS).shortfall is None


def test_a_budget_below_the_bound_is_infeasible_with_the_op_and_the_missing_bytes() -> None:
    for budget in ("6210 B", "55%"):
        result = minimize(diamond(), budget=budget, allow=ORDERS)
        assert (result.status, result.plan.status) == ("infeasible", "infeasible")
        assert result.peak_bytes == {"device": 1211}
        assert result.shortfall is not None
        assert "op 'shrink1' (1,201 B of its own) need 1,211 B in device, 1 B more than the 1,210 B" in why(
            result.shortfall
        )
        assert (
            "; live then: big1 (1,100 B), small1 (101 B), x (10 B); the lowest peak reached is 1,211 B, 55.1 %"
            in describe_missed(result)
        )


def test_a_budget_that_only_exact_search_refutes_is_not_laid_at_the_door_of_one_op() -> None:
    graph = limited_graph(15, limited=False)
    result = minimize(graph)
    assert result.proof is not None
    (space,) = result.proof.spaces
    assert space.cut_bytes < space.bound_bytes
    refused = minimize(graph, budget=f"{space.bound_bytes - 1 + graph.persistent_bytes()[space.space]} B", allow=ORDERS)
    assert refused.status == "infeasible"
    assert refused.shortfall is not None
    assert f"every order needs at least {space.bound_bytes:,} B" in why(refused.shortfall)


def test_a_budget_at_the_bound_that_the_order_misses_is_not_called_infeasible() -> None:
    result = minimize(diamond(), budget="6211 B", scheduler="given", allow=ORDERS)
    assert (result.status, result.lower_bound_bytes) == ("feasible", {"device": 1211})
    assert result.shortfall is not None
    assert "989 B more than the 1,211 B that the budget leaves; not proven" in why(result.shortfall)


def test_inputs_and_outputs_and_persistent_buffers_are_named_when_they_alone_are_too_much() -> None:
    builder = GraphBuilder("edges")
    builder.add_buffer("weight", 100, Lifetime.PERSISTENT)
    builder.add_buffer("x", 50, Lifetime.INPUT)
    graph = builder.build()
    inputs, weights = minimize(graph, budget="120 B", allow=ORDERS), minimize(graph, budget="60 B", allow=ORDERS)
    assert inputs.status == weights.status == "infeasible"
    assert describe_missed(inputs) == (
        "inputs and outputs alone need 50 B in device, 30 B more than the 20 B that the budget leaves (no order of the "
        "unmodified program needs less); the lowest peak reached is 50 B, 100 % of the baseline"
    )
    assert describe_missed(weights) == (
        "persistent buffers need 100 B in device, 40 B more than the budget allows; the best plan found needs another "
        "50 B; the lowest peak reached is 50 B, 100 % of the baseline"
    )


def test_a_capacity_acts_as_a_budget_and_the_tighter_one_is_named() -> None:
    def chain(capacity: int) -> Graph:
        builder = GraphBuilder("chain")
        builder.add_space("sram", capacity_bytes=capacity)
        out = builder.add_buffer("out", 100, Lifetime.OUTPUT)
        builder.add_op("make", "make", writes=[out])
        return builder.build()

    assert minimize(chain(100)).status == "optimal"
    too_small = minimize(chain(99))
    assert (too_small.status, describe_missed(too_small)) == (
        "infeasible",
        "inputs and outputs alone need 100 B in sram, 1 B more than the 99 B that its capacity leaves (no order of the "
        "unmodified program needs less); the lowest peak reached is 100 B, 100 % of the baseline",
    )
    assert "the budget" in str(minimize(chain(99), budget="98 B", allow=ORDERS).shortfall)
    assert "its capacity" in str(minimize(chain(99), budget="200 B", allow=ORDERS).shortfall)


def test_the_first_space_is_kept_within_its_budget_even_if_that_costs_more_in_another() -> None:
    """Reading `wide` early saves 90 bytes on the host, and holds 1 byte more on the device while `work` runs."""
    builder = GraphBuilder("two spaces")
    builder.add_space("device")
    builder.add_space("host")
    wide = builder.add_buffer("wide", 100, space=1)
    held = builder.add_buffer("held", 1, Lifetime.OUTPUT)
    out, aside = builder.add_buffer("out", 15), builder.add_buffer("aside", 90, space=1)
    first = builder.add_op("first", "make", writes=[wide])
    builder.add_op("work", "make", writes=[out, aside], after=[first])
    builder.add_op("shrink", "shrink", reads=[wide], writes=[held])
    graph = builder.build()
    assert minimize(graph).peak_bytes == {"device": 16, "host": 100}
    limited = minimize(graph, budget="15 B", allow=ORDERS)
    assert (limited.peak_bytes, limited.shortfall) == ({"device": 15, "host": 190}, None)


@examples(100)
@given(st.one_of(graphs(max_ops=8), st.integers(0, 10**6).map(_graph_of_20_ops)), st.integers(0, 120))
def test_a_budget_is_met_wherever_the_least_peak_meets_it_and_nothing_moves_where_the_program_meets_it(
    graph: Graph, percent: int
) -> None:
    budget = f"{percent}%"
    within, least = (
        minimize(graph, budget=budget, allow=ORDERS),
        minimize(graph, budget=budget, scheduler="search", allow=ORDERS),
    )
    assert (within.shortfall is None) == (least.shortfall is None)
    if within.shortfall is None:
        alone = not (graph.ranks > 1).any()  # collectives go where they hide behind computation
        assert within.moved_ops <= least.moved_ops or not alone
        before = simulate(graph, Plan.baseline(graph)).peak_bytes
        asked = before[graph.spaces[0].name] * percent // 100
        assert within.peak_bytes[graph.spaces[0].name] <= asked
        if percent >= 100 and not _over_capacity(graph, before):
            assert within.moved_ops == 0 or within.scheduler == "overlap"
    else:
        assert within.peak_bytes == least.peak_bytes


def test_a_budget_between_the_least_peak_and_the_programs_moves_one_op_not_all() -> None:
    result = minimize(diamond(), budget="7110 B", allow=ORDERS)
    assert (result.scheduler, result.moved_ops, result.shortfall) == ("fit", 1, None)
    assert minimize(diamond(), budget="7210 B", allow=ORDERS).moved_ops == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allow": {"teleport"}}, "unknown technique 'teleport'"),
        ({"allow": {"reorder", "recompute"}}, "give a budget"),
        ({"allow": {"offload"}, "budget": "1 B"}, "offload needs a memory space"),
        ({"scheduler": "nonsense"}, "unknown scheduler 'nonsense'"),
        ({"scheduler": "lpmf", "allow": {"share"}}, "'lpmf' needs reorder, which is not allowed"),
        ({"budget": "much"}, "cannot read 'much'"),
        ({"budget": "-1%"}, "cannot read '-1%'"),
        ({"budget": -1}, "negative"),
        ({"budget": "60 percent"}, "^cannot read '60 percent' as a size; write it like 800MiB, 8GiB, 1048576 or 60%$"),
        ({"budget": 50}, "^50 is 50 bytes; write '50%', '50MiB' or '50GiB', or '50B' for bytes$"),
        ({"budget": " 6211 "}, "^6211 is 6211 bytes; write '6211MiB' or '6211GiB', or '6211B' for bytes$"),
        ({"budget": "9" * 5000}, "cannot read"),
    ],
)
def test_a_bad_call_is_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        minimize(diamond(), **arguments)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)


def test_graphs_without_ops_or_buffers_have_an_empty_optimal_plan() -> None:
    result = minimize(GraphBuilder("empty").build())
    assert (result.status, result.peak_bytes, result.plan.n_steps) == ("optimal", {"device": 0}, 0)
    builder = GraphBuilder("no buffers")
    builder.add_op("barrier", "barrier")
    result = minimize(builder.build())
    assert (result.status, result.plan.order().tolist()) == ("optimal", [0])


def test_callees_are_planned_too_and_the_plan_carries_their_plans() -> None:
    builder = GraphBuilder("outer")
    builder.add_subgraph("inner", diamond())
    builder.add_op("call", "custom", callees=["inner"])
    result = minimize(builder.build())
    assert (result.baseline_peak_bytes, result.peak_bytes) == ({"device": 2200}, {"device": 1211})
    assert result.plan.callees["inner"].order().tolist() != [0, 1, 2, 3, 4]
    assert result.status == "optimal"


@pytest.mark.parametrize("stage", ["ordering", "placing", "bounding", "verifying"])
def test_ctrl_c_in_any_stage_still_gives_a_verified_plan_marked_interrupted(stage: str) -> None:
    graph = random_graph(7, 60)
    raised: list[str] = []

    def press_once(text: str) -> None:
        if text.startswith(stage) and not raised:
            raised.append(text)
            raise KeyboardInterrupt

    result = minimize(graph, progress=press_once)
    assert raised
    assert (result.status, result.plan.status) == ("interrupted", "interrupted")
    verify(graph, result.plan, check_capacity=False)
    assert sum(result.peak_bytes.values()) <= sum(result.baseline_peak_bytes.values())
    assert result.plan.addresses


def test_ctrl_c_pressed_again_ends_it() -> None:
    def press(text: str) -> None:
        if not text.startswith("ordering"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        minimize(diamond(), progress=press)


def test_ctrl_c_after_some_orders_keeps_the_best_of_them() -> None:
    def press(text: str) -> None:
        if "(lpmf)" in text:
            raise KeyboardInterrupt

    result = minimize(diamond(), progress=press)
    assert (result.status, result.peak_bytes) == ("interrupted", {"device": 1211})


_DIGEST = """
import hashlib, pathlib, sys
from lowtide import minimize, write_plan_file
from tests.engine.planning.graphs import diamond
from tests.strategies import random_graph
digest, path = hashlib.sha256(), pathlib.Path(sys.argv[1], "p.plan.json.gz")
for seed in range(15):
    graph = random_graph(seed, 3 * seed)
    write_plan_file(minimize(graph).plan, path, graph)
    digest.update(path.read_bytes())
print(digest.hexdigest())
"""


def test_plan_files_are_the_same_byte_for_byte_in_every_process(tmp_path: Path) -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-c", _DIGEST, str(tmp_path)]
        run = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        return run.stdout

    assert digest("1") == digest("2") != ""


def test_percentages_and_the_reported_baseline_are_of_the_unmodified_program_where_one_is_named() -> None:
    def chain(name: str, parts: int) -> Graph:
        builder = GraphBuilder(name)
        before: list[int] = []
        for index in range(parts):
            made = builder.add_buffer(f"t{index}", 240 // parts, Lifetime.INTERMEDIATE)
            builder.add_op(f"op{index}", "work", reads=before, writes=[made])
            before = [made]
        return builder.build()

    whole, small = chain("whole", 2), chain("small", 8)
    assert list(minimize(whole).baseline_peak_bytes.values()) == [240]
    result = find_plan(small, PlanSettings(budget="50%"), whole)
    assert (list(result.baseline_peak_bytes.values()), result.shortfall) == ([240], None)
    assert minimize(small, budget="50%", allow=ORDERS).shortfall is not None
