"""The exact knapsack against trying every choice."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from torch import fx, randn
from torch.fx.experimental.proxy_tensor import make_fx

from lowtide.frameworks.torch.compile.fusion.knapsack import ExactKnapsack, knapsack

ITEMS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8)


@given(ITEMS, st.integers(0, 60))
def test_the_choice_fits_and_no_other_is_worth_more(items: list[tuple[int, int]], capacity: int) -> None:
    weights, values = [weight for weight, _ in items], [value for _, value in items]
    chosen = knapsack(weights, values, capacity)
    assert sum(weights[item] for item in chosen) <= capacity
    every = (group for size in range(len(items) + 1) for group in combinations(range(len(items)), size))
    best = max(
        sum(values[item] for item in group) for group in every if sum(weights[item] for item in group) <= capacity
    )
    assert sum(values[item] for item in chosen) == best


def test_a_hundred_alike_items_are_settled_at_once() -> None:
    """Equal densities make every bound tight, so the first dive proves itself."""
    assert len(knapsack([3.0] * 100, [2.0] * 100, 151.0)) == 50


def test_a_few_bytes_of_scalars_keep_nothing_out() -> None:
    """Half of the memory takes one of two tensors of half of it, whatever a loss beside them weighs."""
    graph = make_fx(lambda value: (value.sin(), value.cos()), tracing_mode="fake")(randn(64, 64)).graph
    nodes: list[fx.Node] = [node for node in graph.nodes if node.op == "call_function"]
    saved, again = ExactKnapsack()([0.500004, 0.499996], graph, 0.499998, None, nodes)
    assert (len(saved), len(again)) == (1, 1)
