"""The verifier against the naive player on correct plans that were broken in some way."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step, verify
from tests.examples import examples
from tests.oracles.addresses import addresses_are_sound
from tests.oracles.naive_player import WrongExecutionError, play, valid_orders
from tests.oracles.plans import claim, plan_of, problem_of
from tests.strategies import graphs, random_graph, rematerializing_plan

_seeds = st.integers(0, 10**6)


def _correct_plan(graph: Graph, random: Random) -> Plan:
    """Return either a plan that rematerializes and copies, or that of some valid order with in-place pairs."""
    if random.random() < 0.5:
        return rematerializing_plan(graph, random)
    order = next(valid_orders(graph))
    return problem_of(graph).plan(plan_of(graph, order).order())


def _random_step(graph: Graph, random: Random) -> Step:
    space = random.randrange(len(graph.spaces))
    buffer = random.randrange(graph.n_buffers) if graph.n_buffers else 0
    op = random.randrange(graph.n_ops) if graph.n_ops else 0
    offered = graph.op(op).in_place if graph.n_ops else ()
    pairs = (random.choice(offered),) if offered else ()
    return random.choice(
        [Run(op), Run(op, pairs), Free(buffer), Free(buffer, space), CopyOut(buffer, space), CopyIn(buffer, space)]
    )


def _break(graph: Graph, steps: list[Step], random: Random) -> list[Step]:
    """Drop, swap, repeat, move, replace or add one step."""
    steps = list(steps)
    one, two = random.randrange(len(steps)), random.randrange(len(steps))
    match random.randrange(6):
        case 0:
            del steps[one]
        case 1:
            steps[one], steps[two] = steps[two], steps[one]
        case 2:
            steps.insert(two, steps[one])
        case 3:
            steps.insert(two, steps.pop(one))
        case 4:
            steps[one] = _random_step(graph, random)
        case _:
            steps.insert(one, _random_step(graph, random))
    return steps


@examples(1000)
@given(graphs(), _seeds)
def test_the_verifier_rejects_a_broken_plan_exactly_if_the_naive_player_does(graph: Graph, seed: int) -> None:
    random = Random(seed)
    steps = list(_correct_plan(graph, random).steps())
    if not steps or not graph.n_buffers or not graph.n_ops:
        return
    for _ in range(4):
        broken = _break(graph, steps, random)
        plan = Plan.from_steps(graph, broken)
        try:
            peaks = play(graph, broken)
        except WrongExecutionError:
            with pytest.raises(VerificationError):
                verify(graph, plan)
        else:
            names = [space.name for space in graph.spaces]
            verify(graph, replace(plan, peak_bytes=dict(zip(names, peaks, strict=True))), check_capacity=False)


@given(graphs(), _seeds)
def test_plans_that_rematerialize_and_copy_are_accepted_with_the_peak_that_simulator_and_naive_player_see(
    graph: Graph, seed: int
) -> None:
    plan = claim(graph, rematerializing_plan(graph, Random(seed)))
    verify(graph, plan, check_capacity=False)
    assert tuple(simulate(graph, plan).peak_bytes.values()) == play(graph, list(plan.steps()))


@given(graphs(), _seeds, st.sampled_from([-1, 1, 7]))
def test_a_claimed_peak_must_be_exact_a_bound_not_above_it_and_an_arena_not_below_it(
    graph: Graph, seed: int, error: int
) -> None:
    plan = claim(graph, _correct_plan(graph, Random(seed)))
    space, peak = next(iter(plan.peak_bytes.items()))
    wrong: list[dict[str, dict[str, int]]] = [
        {"peak_bytes": {**plan.peak_bytes, space: peak + error}},
        {"lower_bound_bytes": {space: peak + abs(error)}},
        {"arena_bytes": {space: peak - abs(error)}},
        {"arena_bytes": {"nowhere": 10}},
        {"peak_bytes": {"nowhere": 0}},
    ]
    for claims in wrong:
        with pytest.raises(VerificationError, match=r"claim|beyond the arena"):
            verify(graph, replace(plan, **claims))


@examples(400)
@given(graphs(), _seeds)
def test_a_shifted_address_is_rejected_exactly_if_it_is_misaligned_outside_or_overlaps(graph: Graph, seed: int) -> None:
    random = Random(seed)
    plan = claim(graph, rematerializing_plan(graph, random))
    for number, address in enumerate(plan.addresses):
        moved = replace(address, offset=address.offset + random.choice([-64, -4, -2, -1, 1, 2, 4, 64]))
        rows = (*plan.addresses[:number], moved, *plan.addresses[number + 1 :])
        shifted = replace(plan, addresses=rows)
        if addresses_are_sound(graph, shifted):
            verify(graph, shifted)
        else:
            with pytest.raises(VerificationError, match=r"offset|overlaps|arena"):
                verify(graph, shifted)


@given(graphs(), _seeds)
def test_a_missing_repeated_extra_or_wrongly_timed_address_is_rejected(graph: Graph, seed: int) -> None:
    random = Random(seed)
    plan = claim(graph, _correct_plan(graph, random))
    if len(plan.addresses) < 2:
        return
    number = random.randrange(len(plan.addresses))
    chosen, others = plan.addresses[number], plan.addresses[:number] + plan.addresses[number + 1 :]
    later = replace(chosen, last_step=chosen.last_step + 1)
    elsewhere = replace(chosen, first_step=chosen.first_step + plan.n_steps, last_step=chosen.last_step + plan.n_steps)
    absurd = [replace(chosen, buffer=graph.n_buffers), replace(chosen, buffer=-1), replace(chosen, space=2)]
    wrong = [others, (chosen, *plan.addresses), (*others, later), (*plan.addresses, elsewhere)]
    for rows in (*wrong, *((*plan.addresses, row) for row in absurd)):
        with pytest.raises(VerificationError, match="address"):
            verify(graph, replace(plan, addresses=rows))


def test_large_plans_are_verified_too() -> None:
    """A graph of thousands of ops, planned and packed, passes; with two adjacent conflicting runs swapped it fails."""
    graph = random_graph(seed=5, n_ops=1500)
    plan = claim(graph, problem_of(graph).plan(problem_of(graph).given_order()))
    verify(graph, plan)
    for op, earlier in enumerate(graph.structure.predecessors):
        if op - 1 in earlier:
            order = plan.order().copy()
            order[[op - 1, op]] = order[[op, op - 1]]
            with pytest.raises(VerificationError):
                verify(graph, Plan.from_order(graph, order))
            break
