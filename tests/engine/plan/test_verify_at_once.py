"""Verification on arrays against verification step by step."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.verify_arrays import verify_arrays
from lowtide.engine.plan.verify_at_once import execution_at_once
from lowtide.engine.plan.verify_execution import execution_by_steps
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.random_plans import random_order, random_plan
from tests.strategies import graphs


def _plan(graph: Graph, random: Random) -> Plan:
    """Return a plan with one step dropped, repeated or moved, or none; or any plan there is."""
    order = np.array(random_order(graph, random), np.int32)
    plans = [Plan.from_order(graph, order), problem_of(graph).plan(order), random_plan(graph, random)]
    steps = list(random.choice(plans).steps())
    for _ in range(random.randrange(3) if steps else 0):
        step = steps.pop(random.randrange(len(steps))) if random.random() < 0.8 else random.choice(steps)
        if random.random() < 0.7 or not steps:
            steps.insert(random.randrange(len(steps) + 1), step)
    return Plan.from_steps(graph, steps)


def _by_key(table: np.ndarray) -> dict[tuple[int, ...], tuple[int, ...] | None]:
    """Return residencies by what tells them apart, with those whose storage they take over; rows have any order."""
    rows = [tuple(row) for row in table.tolist()]
    return {row[:4]: rows[row[4]][:4] if row[4] >= 0 else None for row in rows}


@examples(400)
@given(graphs(10), st.integers(0, 10**6))
def test_all_steps_at_once_find_what_a_walk_finds_where_ops_run_once_and_nothing_is_copied(
    graph: Graph, seed: int
) -> None:
    plan, transient = _plan(graph, Random(seed)), problem_of(graph).transient
    verify_arrays(graph, plan)
    at_once = execution_at_once(graph, plan, transient)
    try:
        peaks, residencies = execution_by_steps(graph, plan, transient)
    except VerificationError:
        assert at_once is None
        return
    copies = np.isin(plan.kinds, [StepKind.COPY_OUT, StepKind.COPY_IN]).any()
    if len(plan.order()) > graph.n_ops or copies:
        assert at_once is None
    else:
        assert at_once is not None
        assert at_once[0] == peaks
        assert len(at_once[1]) == len(residencies)
        assert _by_key(at_once[1]) == _by_key(residencies)
