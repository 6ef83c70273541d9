"""Record the least peaks that OR-Tools CP-SAT proves for random graphs.

OR-Tools needs an environment of its own, with this project installed beside it:

    python3.11 -m venv cp_sat
    cp_sat/bin/pip install ortools .
    PYTHONPATH=. cp_sat/bin/python tests/oracles/record_cp_sat.py tests/data/cp_sat_peaks.json

Every record is [seed, in_place, least peak in bytes]. What CP-SAT does not prove within its work is left out; the work
is counted, not timed, so that a version of OR-Tools records the same everywhere.
"""

import json
import sys
from itertools import islice, permutations
from pathlib import Path
from typing import Any

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Lifetime
from tests.oracles.plans import problem_of
from tests.oracles.random_graphs import random_graph
from tests.oracles.slow_view import SlowView

N_GRAPHS = 150
FEWEST_OPS = 12
MOST_WORK = 5.0
"""Per model, in CP-SAT's deterministic time: some seconds."""


def least_peak_model(problem: Problem) -> Any:
    """State the order of least peak of a graph with one memory space, over which op runs before which.

    A buffer is live at an op when its producer comes before it and one of its users does not.
    """
    from ortools.sat.python import cp_model  # pyright: ignore[reportMissingImports]

    view = SlowView.of(problem)
    ops = range(view.n_ops)
    at_start = [b for b, kind in enumerate(view.lifetimes) if kind in (Lifetime.INPUT, Lifetime.DONATED)]
    made = [b for b, producer in enumerate(view.producers) if producer >= 0]
    model = cp_model.CpModel()
    before = {(a, b): model.new_bool_var(f"{a} before {b}") for a in ops for b in ops if a < b}
    before |= {(b, a): ~runs_first for (a, b), runs_first in before.items()}
    for a, b, c in permutations(ops, 3):
        model.add_bool_or(~before[a, b], ~before[b, c], before[a, c])
    for op in ops:
        for earlier in view.predecessors[op]:
            model.add(before[earlier, op] == 1)

    peak = model.new_int_var(0, sum(view.sizes) + sum(view.scratch), "peak")
    model.add(peak >= sum(view.sizes[b] for b in at_start))
    for op in ops:
        terms: list[Any] = [view.scratch[op], view.defined(op)]
        for buffer in at_start + made:
            if view.producers[buffer] == op:
                continue
            live = model.new_bool_var(f"{buffer} live at {op}")
            exists = [before[view.producers[buffer], op]] if buffer in made else []
            if view.lifetimes[buffer] in (Lifetime.INPUT, Lifetime.OUTPUT):
                model.add_bool_and(live).only_enforce_if(exists)
            for user in view.users[buffer]:
                unused = [] if user == op else [before[op, user]]
                model.add_bool_and(live).only_enforce_if(exists + unused)
            terms.append(view.sizes[buffer] * live)
        terms += [-saved for saved in _saved_in_place(problem, view, op, model, before)]
        model.add(peak >= sum(terms))
    model.minimize(peak)
    return model


def _saved_in_place(problem: Problem, view: SlowView, op: int, model: Any, before: dict[tuple[int, int], Any]) -> Any:
    """Return the bytes that each in-place pair of an op saves if taken; no buffer is in two taken pairs."""
    flat = problem.graph.in_place[op].tolist() if problem.in_place else []
    takes: dict[tuple[int, int], Any] = {}
    for read, written in zip(flat[::2], flat[1::2], strict=True):
        if view.freeable(read) and written in view.allocates[op] and view.sizes[read] == view.sizes[written]:
            takes[read, written] = take = model.new_bool_var(f"{written} takes over {read}")
            for user in view.users[read]:
                if user != op:
                    model.add_implication(take, before[user, op])
    for buffer in sorted({buffer for pair in takes for buffer in pair}):
        model.add_at_most_one(take for pair, take in takes.items() if buffer in pair)
    return [view.sizes[written] * take for (_, written), take in takes.items()]


def proved_peak(problem: Problem) -> int | None:
    """Return the least peak in bytes, or None if CP-SAT does not prove one."""
    from ortools.sat.python import cp_model  # pyright: ignore[reportMissingImports]

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = MOST_WORK
    status = solver.solve(least_peak_model(problem))
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


def main(records_path: str) -> None:
    """Write what is proved of the first random graphs that have one memory space and enough ops."""
    seeds = (seed for seed in range(10**6) if _is_wanted(seed))
    cases = [(seed, in_place) for seed in islice(seeds, N_GRAPHS) for in_place in (False, True)]
    peaks = [proved_peak(problem_of(random_graph(seed), in_place=in_place)) for seed, in_place in cases]
    records = [[*case, peak] for case, peak in zip(cases, peaks, strict=True) if peak is not None]
    lines = ",\n".join(json.dumps(record) for record in records)
    Path(records_path).write_text(f"[\n{lines}\n]\n")
    print(f"{len(records)} of {len(cases)} proved")


def _is_wanted(seed: int) -> bool:
    graph = random_graph(seed)
    return len(graph.spaces) == 1 and graph.n_ops >= FEWEST_OPS


if __name__ == "__main__":
    main(*sys.argv[1:])
