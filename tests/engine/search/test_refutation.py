"""Found logs are confirmed by the replay, damaged logs show nothing false."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis.lower_bounds import lower_bounds
from lowtide.engine.graph import Graph
from lowtide.engine.search.check_refutation import is_refuted
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof import Cycle, Either, First, Last, Line, Need, Next, Over, Previous
from lowtide.engine.search.searched import find_refutation
from tests.examples import examples, share_of
from tests.oracles.least_peak import least_peak
from tests.oracles.plans import problem_of
from tests.oracles.random_graphs import random_graph
from tests.strategies import graphs

WORK = 10**8
LITTLE_WORK = 10_000
"""Work with which most logs are walks over sets."""


def _program(graph: Graph, *, in_place: bool) -> PlainProgram:
    return PlainProgram(graph, problem_of(graph, in_place=in_place).transient, in_place, 0)


@examples(80)
@given(graphs(9), st.booleans(), st.integers(-3, 3))
def test_a_log_is_found_for_impossible_budgets_only_and_is_confirmed(graph: Graph, in_place: bool, more: int) -> None:
    problem = problem_of(graph, in_place=in_place)
    budget = least_peak(problem, 0) + more
    log = find_refutation(problem, problem.given_order(), 0, budget, WORK)
    assert not (log and more >= 0)
    assert not log or is_refuted(_program(graph, in_place=in_place), budget, log)


def test_most_budgets_below_the_least_peak_and_above_all_cuts_are_refuted() -> None:
    found = tried = 0
    seeds = share_of(range(100), 4)
    for seed in seeds:
        graph = random_graph(seed, limited=False)
        problem = problem_of(graph)
        least = least_peak(problem, 0)
        if lower_bounds(problem, [problem.given_order()])[0].peak_bytes < least:
            tried += 1
            found += bool(find_refutation(problem, problem.given_order(), 0, least - 1, WORK))
    assert tried > 0.1 * len(seeds)
    assert found > tried * 0.8


@examples(40)
@given(st.integers(0, 400), st.integers(0, 10**6))
def test_a_damaged_log_shows_nothing_that_is_false(number: int, seed: int) -> None:
    graph = random_graph(number, limited=False)
    problem, random = problem_of(graph), Random(seed)
    least = least_peak(problem, 0)
    log = [*find_refutation(problem, problem.given_order(), 0, least - 1, random.choice([WORK, LITTLE_WORK]))]
    ops = range(graph.n_ops + 1)
    some = tuple(random.sample(ops, random.randrange(3)))
    lines: list[Line] = [
        Need(*(random.choice(ops) for _ in range(3))),
        Over(random.choice(ops)),
        Cycle(),
        Either(random.choice(ops), random.choice(ops)),
        *(kind(some) for kind in (First, Last, Next, Previous)),
    ]
    for _ in range(3):
        place = random.randrange(len(log) + 1)
        log[place : place + random.randrange(2)] = random.choices(lines, k=random.randrange(3))
        assert not is_refuted(_program(graph, in_place=True), least, log)


def test_walks_over_sets_in_both_directions_refute_other_budgets() -> None:
    kinds: set[type[Line]] = set()
    for seed in share_of(range(0, 200, 3), 4):
        graph = random_graph(seed, limited=False)
        problem = problem_of(graph)
        below = least_peak(problem, 0) - 1
        log = find_refutation(problem, problem.given_order(), 0, below, LITTLE_WORK)
        assert not log or is_refuted(_program(graph, in_place=True), below, log)
        kinds |= {type(line) for line in log}
    assert kinds >= {First, Last, Next, Previous}


def test_no_op_is_settled_last_that_keeps_an_operand_from_another_with_pairs_of_its_own() -> None:
    graph = random_graph(1215, limited=False)
    problem = problem_of(graph)
    below = least_peak(problem, 0) - 1
    log = find_refutation(problem, problem.given_order(), 0, below, 30_000)
    assert any(isinstance(line, Last) for line in log)
    assert is_refuted(_program(graph, in_place=True), below, log)


def test_a_walk_that_has_placed_all_ops_shows_nothing() -> None:
    graph = random_graph(3, limited=False)
    problem = problem_of(graph)
    program, enough = _program(graph, in_place=True), 10**9
    steps = problem.given_order().tolist()
    assert not is_refuted(program, enough, [*(Next((op,)) for op in steps), Next(())])
    assert not is_refuted(program, enough, [*(First((op,)) for op in steps), Next(())])
    assert not is_refuted(program, enough, [*(Last((op,)) for op in reversed(steps)), Previous(())])
    assert not is_refuted(program, enough, [Next(())])


def test_a_log_that_stops_in_a_case_or_goes_on_after_the_last_one_shows_nothing() -> None:
    graph = random_graph(165, limited=False)
    log, program = _refutation(graph), _program(graph, in_place=True)
    below = least_peak(problem_of(graph), 0) - 1
    assert any(isinstance(line, Either) for line in log)
    assert is_refuted(program, below, log)
    assert not is_refuted(program, below, log[:-1])
    assert not is_refuted(program, below, [*log, log[-1]])
    assert not is_refuted(program, below, ())


def _refutation(graph: Graph) -> tuple[Line, ...]:
    problem = problem_of(graph)
    order = np.asarray(problem.given_order())
    return find_refutation(problem, order, 0, least_peak(problem, 0) - 1, WORK)
