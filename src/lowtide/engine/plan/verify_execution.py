"""Checks of the rules of execution; the peak and residencies of a plan."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import StepIndex
from lowtide.engine.graph import Graph, Lifetime, Rows
from lowtide.engine.graph.execution import may_run_twice, why_not_twice
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP
from lowtide.engine.plan.plan import Plan, StepKind
from lowtide.engine.plan.verify_contents import Violations, program_accesses, verify_contents


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a memory space, without persistent buffers."""

    bytes: int
    step: StepIndex
    """The first step at the peak, -1 before the first step."""


def verify_execution(graph: Graph, plan: Plan, transient: NDArray[np.int64]) -> tuple[list[Peak], NDArray[np.int64]]:
    """Check the execution of a plan with ids in range. O((steps + e) log e).

    Returns the peak per memory space and a table of residencies: the columns of `Addresses`, but with the residency
    that hands over its storage, or -1, instead of the offset. Raises VerificationError for the first violated rule.
    """
    violations = Violations(graph, plan)
    steps = np.flatnonzero(plan.kinds == StepKind.RUN)
    ops = plan.targets[steps]
    by_op = steps[np.argsort(ops, kind="stable")].astype(np.int32)
    runs = Rows(np.append(0, np.cumsum(np.bincount(ops, minlength=graph.n_ops))), by_op)
    _check_order(runs, violations)
    accesses = program_accesses(graph)
    residencies, replaced = verify_contents(accesses, runs, violations)
    _check_pairs(accesses.allocators, replaced, violations)
    violations.raise_first()
    return _peaks(graph, plan, residencies, transient), _with_hand_overs(graph, plan, residencies)


def _check_order(runs: Rows, violations: Violations) -> None:
    graph, n_steps = violations.graph, violations.plan.n_steps
    counts = np.diff(runs.offsets)
    ran, again = np.flatnonzero(counts > 0), np.flatnonzero(counts > 1)
    first_run = np.full(graph.n_ops, n_steps, np.int64)
    first_run[ran] = runs.values[runs.offsets[ran]]
    violations.add(
        np.full(graph.n_ops, n_steps, np.int64),
        counts == 0,
        0,
        lambda op: f"op {violations.op(op)} never ran; run every op at least once",
    )
    if len(again):
        violations.add(
            runs.values[runs.offsets[again] + 1].astype(np.int64),
            ~may_run_twice(graph)[again],
            0,
            lambda row: (
                f"op {violations.op(again[row])} runs a second time, but {why_not_twice(graph, again[row])}; "
                "run it once"
            ),
        )
    earlier, later = graph.after.values, graph.after.owners()
    violations.add(
        first_run[later],
        (first_run[earlier] >= first_run[later]) & (first_run[later] < n_steps),
        1,
        lambda row: (
            f"op {violations.op(later[row])} runs before its control predecessor {violations.op(earlier[row])}; "
            "run that op first"
        ),
    )
    ordered = ran[graph.ordered[ran]]
    ordered = ordered[np.argsort(first_run[ordered])]
    violations.add(
        first_run[ordered[1:]],
        ordered[1:] < ordered[:-1],
        2,
        lambda row: (
            f"ordered op {violations.op(ordered[row + 1])} runs after ordered op {violations.op(ordered[row])}; "
            "keep their program order"
        ),
    )


def _check_pairs(allocators: NDArray[np.int32], replaced: NDArray[np.int64], violations: Violations) -> None:
    graph, plan = violations.graph, violations.plan
    if not len(plan.pairs.values):
        return
    owners, flat = plan.pairs.owners().astype(np.int64), plan.pairs.values
    steps, reads, writes = owners[::2], flat[::2], flat[1::2]
    ops = plan.targets[steps]
    _, where, counts = np.unique(owners * graph.n_buffers + flat, return_inverse=True, return_counts=True)
    violations.add(
        owners,
        counts[where] > 1,
        4,
        lambda row: (
            f"op {violations.op(int(plan.targets[int(owners[row])]))} uses in-place pairs that share a buffer; "
            "use each buffer in one pair"
        ),
    )
    lifetimes, offered = graph.lifetimes[reads], graph.in_place
    keys = np.concatenate([offered.values[::2], reads]) * np.int64(graph.n_buffers)
    keys += np.concatenate([offered.values[1::2], writes])
    _, pair_ids = np.unique(keys, return_inverse=True)
    by_step = np.int64(graph.n_buffers)
    keys = pair_ids + np.concatenate([offered.owners()[::2], ops]) * np.int64(len(pair_ids))
    violated = np.column_stack(
        [
            ~np.isin(keys[-len(ops) :], keys[: -len(ops)]),
            (lifetimes != Lifetime.DONATED) & (lifetimes != Lifetime.INTERMEDIATE),
            (graph.sizes[reads] != graph.sizes[writes]) | (graph.buffer_spaces[reads] != graph.buffer_spaces[writes]),
            (allocators[writes] != ops) | np.isin(steps * by_step + writes, replaced[:, 0] * by_step + replaced[:, 1]),
        ]
    )

    def describe(row: int) -> str:
        pair = f"in-place pair {violations.buffer(reads[row])} -> {violations.buffer(writes[row])}"
        match int(violated[row].argmax()):
            case 0:
                return f"op {violations.op(ops[row])} does not offer {pair}; use only pairs of the graph"
            case 1:
                return f"{pair}: the read buffer must stay resident; only donated and intermediate buffers can be freed"
            case 2:
                return f"{pair}: the buffers differ in size or memory space; both must be equal"
            case _:
                return f"{pair}: the written buffer has storage already; only an allocation can take over storage"

    violations.add(steps, np.logical_or.reduce(violated, axis=1), 5, describe)


def _peaks(graph: Graph, plan: Plan, residencies: NDArray[np.int64], transient: NDArray[np.int64]) -> list[Peak]:
    buffers, firsts, lasts, spaces = residencies.T
    at_start = (firsts == 0) & (spaces == graph.buffer_spaces[buffers]) & graph.exists_at_start[buffers]
    live = np.zeros((plan.n_steps + 2, len(graph.spaces)), np.int64)
    np.add.at(live, (firsts + ~at_start, spaces), graph.sizes[buffers])
    np.subtract.at(live, (lasts + 1, spaces), graph.sizes[buffers])
    live = np.cumsum(live, axis=0)[:-1]
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    live[runs + 1] += transient[plan.targets[runs]]
    rows = live.argmax(axis=0).tolist()
    return [Peak(int(live[row, space]), row - 1) for space, row in enumerate(rows)]


def _with_hand_overs(graph: Graph, plan: Plan, residencies: NDArray[np.int64]) -> NDArray[np.int64]:
    table = np.column_stack([residencies, np.full(len(residencies), -1)])
    steps, reads, writes = plan.pairs.owners()[::2], plan.pairs.values[::2], plan.pairs.values[1::2]
    has_size = graph.sizes[reads] > 0
    if has_size.any():
        steps, reads, writes = steps[has_size], reads[has_size], writes[has_size]
        at_home = np.flatnonzero(table[:, 3] == graph.buffer_spaces[table[:, 0]])
        keys = table[at_home] @ [plan.n_steps + 1, 1, 0, 0, 0]
        rows = at_home[np.argsort(keys)]
        keys.sort()
        written = np.searchsorted(keys, writes * np.int64(plan.n_steps + 1) + steps)
        read = np.searchsorted(keys, reads * np.int64(plan.n_steps + 1) + steps, side="right") - 1
        table[rows[written], 4] = rows[read]
    table[table[:, 1] == table[:, 2], 1] = BEFORE_THE_FIRST_STEP
    return table
