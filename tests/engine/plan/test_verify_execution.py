"""Verification on arrays against the oracle that walks over the steps."""

import re
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify_contents
from lowtide.engine.plan.verify_execution import verify_execution
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.oracles.random_plans import random_order, random_plan
from tests.oracles.walked_execution import walked_execution
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
    """Return residencies by their key, with the residency that hands over its storage; rows may be in any order."""
    rows = [tuple(row) for row in table.tolist()]
    return {row[:4]: rows[row[4]][:4] if row[4] >= 0 else None for row in rows}


def _message_or_none(graph: Graph, plan: Plan, transient: np.ndarray) -> str | None:
    try:
        walked_execution(graph, plan, transient)
    except VerificationError as error:
        return str(error)
    return None


@examples(400)
@given(graphs(10), st.integers(0, 10**6), st.sampled_from([2, 2**15]))
def test_arrays_give_the_peaks_residencies_and_messages_of_a_walk_over_the_steps(
    graph: Graph, seed: int, buffers_per_part: int
) -> None:
    plan, transient = _plan(graph, Random(seed)), problem_of(graph).transient
    message = _message_or_none(graph, plan, transient)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_contents, "_BUFFERS_PER_PART", buffers_per_part)
        if message is None:
            found_peaks, found = verify_execution(graph, plan, transient)
            peaks, residencies = walked_execution(graph, plan, transient)
            assert found_peaks == peaks
            assert len(found) == len(residencies)
            assert _by_key(found) == _by_key(residencies)
        else:
            # if one op finds wrong contents in several buffers, any of these may be named
            expected = re.escape(message.partition(" touches ")[0])
            with pytest.raises(VerificationError, match=f"^{expected}"):
                verify_execution(graph, plan, transient)
