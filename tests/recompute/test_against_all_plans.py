"""The budgeted planner against every plan there is, on small random graphs with every feature."""

from random import Random

import pytest

from lowtide.graph import Graph, GraphBuilder, Lifetime
from lowtide.recompute import plan_within_budget
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.strategies import random_graph

INFINITE = float("inf")


def skipping_graph(seed: int) -> Graph:
    """Six or seven ops that read again what was made long before, so that much can be dropped: several outputs per op,
    scratch, in-place pairs, a donated input, a result that stays, and now and then an op that must run once."""
    random = Random(seed)
    builder = GraphBuilder(f"skipping {seed}")
    sizes = [4, 2]
    buffers = [builder.add_buffer("x", 4, Lifetime.PERSISTENT), builder.add_buffer("d", 2, Lifetime.DONATED)]
    n_ops = random.randint(6, 7)
    for op in range(n_ops):
        reads = [buffers[-1], *random.sample(buffers, random.choice((0, 1, 1)))]
        written: list[int] = []
        for _ in range(random.choice((1, 1, 1, 2))):
            sizes.append(random.choice((1, 2, 4, 4, 6)))
            stays = op + 1 == n_ops or random.random() < 0.1
            lifetime = Lifetime.OUTPUT if stays else Lifetime.INTERMEDIATE
            written.append(builder.add_buffer(f"b{len(sizes)}", sizes[-1], lifetime))
        builder.add_op(
            f"op{op}",
            "op",
            reads=reads,
            writes=written,
            in_place=[(r, w) for r in dict.fromkeys(reads) for w in written if sizes[r] == sizes[w]],
            scratch_bytes=random.choice((0, 0, 3)),
            pure=random.random() < 0.9,
            cost=random.choice((1.0, 2.0, 5.0)),
        )
        buffers += written
    return builder.build()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_costs_lie_between_their_bound_and_never_below_the_least_of_all_plans(in_place: bool, exact: bool) -> None:
    """bound <= least <= cost at every budget below the peak, and what is called infeasible has no plan."""
    if exact:
        pytest.importorskip("highspy")
    found, best = 0, 0
    graphs = [skipping_graph(seed) for seed in range(100)] + [random_graph(seed, 3 + seed % 3) for seed in range(20)]
    for graph in graphs:
        problem = problem_of(graph, in_place=in_place)
        order = problem.given_order()
        for budget in range(int(problem.evaluate(order).peaks[0]) - 1, -1, -1):
            result = plan_within_budget(problem, order, budget, exact=exact)
            if result.floor.peak_bytes > budget:
                assert result.status == "infeasible"
                assert least_extra_cost(problem, budget) == INFINITE
                break
            least = least_extra_cost(problem, budget)
            assert result.extra_cost_bound <= least
            if result.fits:
                assert result.peak_bytes <= budget
                assert result.extra_cost >= least
            if least < INFINITE:
                found += 1
                best += result.fits and result.extra_cost == least
    assert found > 100
    assert best >= (0.85 if exact else 0.6) * found
