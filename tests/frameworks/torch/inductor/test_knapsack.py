"""The exact knapsack against trying every choice."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lowtide.frameworks.torch.inductor.knapsack import knapsack

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
