"""The search is interruptible, deterministic, and never worse than its seeds."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.schedule import scheduler
from lowtide.engine.search import solve
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.strategies import graphs, random_graph


@examples(100)
@given(graphs(20), st.booleans())
def test_the_result_is_never_above_any_seed_whatever_the_effort(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    seeds = [scheduler(name).order(problem) for name in ("given", "mesh-list", "dfs")]
    best = min(int(problem.evaluate(seed).peaks.sum()) for seed in seeds)
    for effort in SEARCH_EFFORTS.values():
        solution = solve(problem, seeds, effort)
        assert sum(solution.peaks) <= best
        assert solution.peaks == tuple(problem.evaluate(solution.order).peaks.tolist())


@examples(50)
@given(graphs(20))
def test_the_same_problem_has_the_same_solution(graph: Graph) -> None:
    one, two = (
        solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"])
        for problem in (problem_of(graph), problem_of(graph))
    )
    assert (one.order == two.order).all()
    assert (one.peaks, one.bounds, one.work) == (two.peaks, two.bounds, two.work)


def test_ctrl_c_at_any_stage_leaves_the_best_order_and_valid_bounds() -> None:
    problem = problem_of(random_graph(5, 40))
    done = solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"])
    stages: list[str] = []
    solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"], progress=stages.append)
    assert stages
    for stop in range(len(stages)):
        seen: list[str] = []

        def press(stage: str, stop: int = stop, seen: list[str] = seen) -> None:
            seen.append(stage)
            if len(seen) > stop:
                raise KeyboardInterrupt

        solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"], progress=press)
        assert solution.interrupted
        assert sum(solution.peaks) >= sum(bound.peak_bytes for bound in done.bounds)
        assert all(bound.peak_bytes <= peak for bound, peak in zip(solution.bounds, done.peaks, strict=True))


def test_a_limit_on_one_space_comes_before_the_sum_of_all() -> None:
    """Either a small detour through a small space, or a large one through a large space."""
    builder = GraphBuilder("two spaces")
    builder.add_space("tight")
    builder.add_space("wide")
    big = [builder.add_buffer(f"big{k}", 10, space=0) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 1, space=1) for k in range(2)]
    for k in range(2):
        builder.add_op(f"make{k}", "make", writes=[big[k]])
    for k in range(2):
        builder.add_op(f"shrink{k}", "shrink", reads=[big[k]], writes=[small[k]], scratch_bytes=0)
    builder.add_op("join", "join", reads=small)
    problem = problem_of(builder.build())
    solution = solve(
        problem, [problem.given_order()], SEARCH_EFFORTS["fast"], budget=Budget.of_limits(problem.graph, [10, None])
    )
    assert solution.peaks[0] == 10
