"""Recheck the least memory at which an op can run, by a flow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Lifetime, Rows
from lowtide.engine.graph.structure import Structure
from lowtide.engine.search.plain_max_flow import INFINITE, PlainMaxFlow
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof import CutFlow

_MOST_BYTES = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The memory of an op as a function of the closed set of ops before it.

    A buffer costs its size from its production until all ops before its free have run.
    """

    op: OpId
    fixed: int
    sizes: NDArray[np.int64]
    """Bytes per buffer. A result with a single in-place operand costs bytes only while this operand lives."""
    makers: NDArray[np.int32]
    """The op after which it costs bytes, or -1."""
    used: NDArray[np.int32]
    """Buffers, once per op that must precede the free."""
    users: NDArray[np.int32]
    """These ops; the op itself represents the end."""


def cut_of(program: PlainProgram, op: OpId) -> Cut:
    structure, lifetimes = program.structure, program.graph.lifetimes
    makers = structure.producers.copy()
    sizes = np.where((makers < 0) & (lifetimes != Lifetime.DONATED), 0, program.bytes_here)
    single_operands = _single_operands(program, op)
    is_output, is_plain = lifetimes == Lifetime.OUTPUT, lifetimes != Lifetime.OUTPUT
    for written in single_operands:
        is_output[written] = is_plain[written] = False
        makers[written] = -1
    used = structure.users.owners()
    plain = is_plain[used]
    outputs = np.flatnonzero(is_output).astype(np.int32)
    parts = [(used[plain], structure.users.values[plain]), (outputs, np.full(len(outputs), op, np.int32))]
    for written, read in single_operands.items():
        others = structure.users[read]
        others = others[others != op]
        parts.append((np.full(len(others), written, np.int32), others))
    return Cut(
        op=op,
        fixed=_fixed_bytes(program, op),
        sizes=sizes,
        makers=makers,
        used=np.concatenate([buffers for buffers, _ in parts]),
        users=np.concatenate([ops for _, ops in parts]),
    )


def is_closed_before(program: PlainProgram, op: OpId, before: NDArray[np.bool_]) -> bool:
    """Return whether the mask holds all predecessors of its ops and of `op`, but not `op`. O(n + e)."""
    waiting = before.copy()
    waiting[op] = True
    predecessors = program.structure.predecessors
    waited_for = predecessors.values[waiting[predecessors.owners()]]
    return not before[op] and bool(before[waited_for].all())


def needed_after(cut: Cut, before: NDArray[np.bool_]) -> int:
    """Return the op's need after exactly the masked ops. O(n + e)."""
    is_made = (cut.makers < 0) | before[cut.makers]
    is_kept = np.zeros(len(cut.sizes), np.bool_)
    is_kept[cut.used[~before[cut.users]]] = True
    return cut.fixed + int(cut.sizes[is_made & is_kept].sum())


def least_needed(program: PlainProgram, op: OpId, dependencies: Sequence[tuple[OpId, OpId]] = ()) -> int:
    """Return the least of `needed_after` over all closed sets by a maximum flow, INFINITE or more without one.

    `dependencies` are further pairs (earlier, later). Executed ops are on the source side of the flow.
    """
    cut = cut_of(program, op)
    flow = PlainMaxFlow(program.n_ops + 2)
    given = ((earlier, later) for later in range(program.n_ops) for earlier in program.predecessors[later])
    for earlier, later in (*given, *dependencies):
        flow.add_edge(flow.SOURCE if later == op else later + 2, earlier + 2, INFINITE)
    flow.add_edge(op + 2, flow.SINK, INFINITE)
    node: dict[BufferId, int] = {}
    for buffer in np.unique(cut.used[cut.sizes[cut.used] > 0]).tolist():
        node[buffer] = flow.add_node()
        maker = int(cut.makers[buffer])
        flow.add_edge(flow.SOURCE if maker < 0 else maker + 2, node[buffer], int(cut.sizes[buffer]))
    for buffer, user in zip(cut.used.tolist(), cut.users.tolist(), strict=True):
        if buffer in node:
            flow.add_edge(node[buffer], user + 2, INFINITE)
    return cut.fixed + flow.run()


def _fixed_bytes(program: PlainProgram, op: OpId) -> int:
    fresh = set(program.structure.allocates[op].tolist()) - {written for _, written in program.pairs_of(op)}
    allocated = sum(int(program.bytes_here[buffer]) for buffer in fresh)
    return program.bytes_of(Lifetime.INPUT) + program.transient_of(op) + allocated


def _single_operands(program: PlainProgram, op: OpId) -> dict[BufferId, BufferId]:
    operands: dict[BufferId, list[BufferId]] = {}
    for read, written in program.pairs_of(op):
        operands.setdefault(written, []).append(read)
    return {written: reads[0] for written, reads in operands.items() if len(reads) == 1}


def least_by_flow(structure: Structure, cut: Cut, flow: CutFlow) -> int | None:
    """Return the bytes that a flow shows an op to need in any order, None if it is invalid.

    By weak duality of flows and cuts (Ford and Fulkerson, 1956): bytes leave a closed set of executed ops only through
    live buffers, so these hold at least the bytes that end at descendants of `op`. O((n + e) log e).
    """
    uses, waits = flow.uses, flow.dependencies
    if sum(map(sum, (uses.bytes, waits.bytes))) > _MOST_BYTES:
        return None
    if any(not len(moves.sources) == len(moves.targets) == len(moves.bytes) for moves in (uses, waits)):
        return None
    buffers, users, used_bytes = _array(uses.sources), _array(uses.targets), _array(uses.bytes)
    later, earlier, passed_bytes = _array(waits.sources), _array(waits.targets), _array(waits.bytes)
    predecessors = structure.predecessors
    if not _are_among(users, buffers, cut.users, cut.used):
        return None
    if not _are_among(later, earlier, predecessors.owners(), predecessors.values):
        return None

    before, after = _reached(predecessors, cut.op), _reached(structure.successors, cut.op)
    after[cut.op] = True
    is_made = (cut.makers < 0) | before[cut.makers]
    is_kept = np.zeros(len(cut.sizes), np.bool_)
    is_kept[cut.used[after[cut.users]]] = True
    is_kept &= is_made
    given = np.zeros(len(cut.sizes), np.int64)
    np.add.at(given, buffers, used_bytes)
    if (given > np.where(is_kept, 0, cut.sizes)).any():
        return None
    gets = np.zeros(len(before), np.int64)
    np.add.at(gets, users, used_bytes)
    np.add.at(gets, earlier, passed_bytes)
    np.subtract.at(gets, later, passed_bytes)
    makers = cut.makers[buffers]
    np.subtract.at(gets, makers[makers >= 0], used_bytes[makers >= 0])
    if gets[~before & ~after].any():
        return None
    return cut.fixed + int(cut.sizes[is_kept].sum()) + int(gets[after].sum())


def _array(column: Sequence[int]) -> NDArray[np.int64]:
    return np.fromiter(column, np.int64, len(column))


def _are_among(
    rows: NDArray[np.int64], values: NDArray[np.int64], known_rows: NDArray[np.int32], known: NDArray[np.int32]
) -> bool:
    return bool(np.isin(rows << 32 | values, known_rows.astype(np.int64) << 32 | known).all())


def _reached(rows: Rows, op: OpId) -> NDArray[np.bool_]:
    reached = np.zeros(len(rows), np.bool_)
    marks, offsets, values = reached.view(np.uint8).data, rows.offsets.data, rows.values.data
    waiting = [op]
    while waiting:
        each = waiting.pop()
        for place in range(offsets[each], offsets[each + 1]):
            found = values[place]
            if not marks[found]:
                marks[found] = 1
                waiting.append(found)
    return reached
