"""Chen's segments: correct on every graph, square root of n on chains."""

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, read_graph_file
from lowtide.engine.plan import Plan, verify
from lowtide.engine.recompute.checkpointing import segment_plan
from tests.examples import examples
from tests.oracles.replay import replay
from tests.strategies import graphs


def _chain(n_layers: int) -> Graph:
    """Return a chain of layers and its backward pass, which reads what every layer read."""
    builder = GraphBuilder("chain")
    x = builder.add_buffer("x", 1, Lifetime.INPUT)
    values = [x]
    for k in range(n_layers):
        values.append(builder.add_buffer(f"h{k}", 1))
        builder.add_op(f"f{k}", "layer", reads=[values[-2]], writes=[values[-1]])
    gradient = values[-1]
    for k in reversed(range(n_layers)):
        result = builder.add_buffer(f"g{k}", 1, Lifetime.INTERMEDIATE if k else Lifetime.OUTPUT)
        builder.add_op(f"b{k}", "gradient", reads=[gradient, values[k]], writes=[result])
        gradient = result
    return builder.build()


@pytest.mark.parametrize("n_layers", [1, 2, 9, 100, 1000])
def test_on_a_chain_the_peak_is_in_the_square_root_for_at_most_one_more_forward_pass(n_layers: int) -> None:
    graph = _chain(n_layers)
    plan = segment_plan(graph)
    assert simulate(graph, Plan.baseline(graph)).peak_bytes["device"] >= n_layers + 1
    assert simulate(graph, plan).peak_bytes["device"] <= 2 * math.isqrt(n_layers) + 5
    assert len(plan.order()) <= graph.n_ops + n_layers


@examples(300)
@given(graphs(16), st.integers(0, 10**6))
def test_on_every_graph_the_plan_computes_what_the_program_computes(graph: Graph, seed: int) -> None:
    random = Random(seed)
    plan = segment_plan(graph, backward_from=random.randint(0, graph.n_ops), n_segments=random.randint(1, 6))
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


def test_a_real_training_step_needs_less() -> None:
    graph = read_graph_file(Path(__file__).parents[3] / "data" / "graphs" / "unet_plain_b4.step.graph.json.gz")
    before, after = (simulate(graph, plan).peak_bytes["device"] for plan in (Plan.baseline(graph), segment_plan(graph)))
    assert after < before


def test_numbers_out_of_range_are_refused() -> None:
    graph = _chain(3)
    with pytest.raises(UsageError, match="cannot start at op 7; give a number from 0 to 6"):
        segment_plan(graph, backward_from=7)
    with pytest.raises(UsageError, match="cannot be cut into 0 segments"):
        segment_plan(graph, n_segments=0)
