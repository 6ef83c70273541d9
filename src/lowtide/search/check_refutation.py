"""Replays, in plain Python, a log that no order stays within a budget."""

from collections.abc import Sequence

from lowtide.index_spaces import OpId
from lowtide.search.check_cut import least_needed
from lowtide.search.plain_program import PlainProgram
from lowtide.search.proof_log import Cycle, Either, Line, Need, Over

_Dependencies = list[tuple[OpId, OpId]]


def is_refuted(program: PlainProgram, budget_bytes: int, log: Sequence[Line]) -> bool:
    """Whether a log shows that no order stays within a budget; one maximum flow a line.

    A line is right if it follows from the program and the dependencies known where it stands. The log shows it all if
    every case ends, and nothing follows after the last one.
    """
    known: _Dependencies = []
    opposite: list[tuple[int, OpId, OpId]] = []  # of each open case: what was known before it, and the other way round
    ended = False
    for line in log:
        if ended or not _is_right(program, budget_bytes, known, line):
            return False
        match line:
            case Need(_, earlier, later):
                known.append((earlier, later))
            case Either(one, other):
                opposite.append((len(known), other, one))
                known.append((one, other))
            case Over() | Cycle():
                ended = not opposite
                if opposite:
                    n_known, earlier, later = opposite.pop()
                    known[n_known:] = [(earlier, later)]
    return ended


def _is_right(program: PlainProgram, budget_bytes: int, known: _Dependencies, line: Line) -> bool:
    match line:
        case Need(op, earlier, later):
            if op not in (earlier, later) or max(earlier, later) >= program.n_ops or earlier == later:
                return False
            return least_needed(program, op, [*known, (later, earlier)]) > budget_bytes
        case Over(op):
            return op < program.n_ops and least_needed(program, op, known) > budget_bytes
        case Either(one, other):
            return one != other and max(one, other) < program.n_ops
        case Cycle():
            return _closes_a_cycle(program, known)


def _closes_a_cycle(program: PlainProgram, known: _Dependencies) -> bool:
    """Whether the program and some dependencies leave no order at all."""
    waiting_for: list[set[OpId]] = [set(earlier) for earlier in program.predecessors]
    for earlier, later in known:
        waiting_for[later].add(earlier)
    followers: list[list[OpId]] = [[] for _ in waiting_for]
    for later, earlier_ones in enumerate(waiting_for):
        for earlier in earlier_ones:
            followers[earlier].append(later)
    left = [len(earlier_ones) for earlier_ones in waiting_for]
    ready = [op for op, count in enumerate(left) if not count]
    for op in ready:
        for later in followers[op]:
            left[later] -= 1
            if not left[later]:
                ready.append(later)
    return len(ready) < program.n_ops
