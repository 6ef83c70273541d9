"""The set of ranks that the sweep over addresses uses."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.plan.verify_addresses import SortedRanks


@given(st.data(), st.integers(1, 2000))
def test_neighbors_are_those_of_a_sorted_list(data: st.DataObject, limit: int) -> None:
    ranks = SortedRanks(limit)
    held: set[int] = set()
    for rank in data.draw(st.lists(st.integers(0, limit - 1), max_size=60)):
        assert ranks.below(rank) == max((other for other in held if other < rank), default=None)
        assert ranks.above(rank) == min((other for other in held if other > rank), default=None)
        if rank in held:
            ranks.remove(rank)
        else:
            ranks.add(rank)
        held ^= {rank}
