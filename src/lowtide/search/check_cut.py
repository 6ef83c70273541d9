"""Re-checks, in plain Python, the least memory at which an op can ever run."""

from collections.abc import Sequence

from lowtide.graph import Lifetime
from lowtide.index_spaces import OpId
from lowtide.search.plain_max_flow import INFINITE, PlainMaxFlow
from lowtide.search.plain_program import PlainProgram


def is_closed_before(program: PlainProgram, op: OpId, before: set[OpId]) -> bool:
    """Whether exactly these ops may have run when the op is about to run.

    They must hold all that they and the op wait for, and not the op; then nothing that waits for the op is among them.
    """
    waited_for = {earlier for later in (*before, op) for earlier in program.predecessors[later]}
    return op not in before and waited_for <= before


def needed_after(program: PlainProgram, op: OpId, before: set[OpId]) -> int:
    """Return the bytes that an op needs while it runs when exactly `before` has run, by summing up buffers."""
    total = _fixed(program, op)
    for buffer, size in enumerate(program.sizes):
        made = program.producers[buffer] in before
        if program.lifetimes[buffer] == Lifetime.OUTPUT:
            total += size if made else 0
        elif made or program.lifetimes[buffer] == Lifetime.DONATED:
            total += size if any(user not in before for user in program.users[buffer]) else 0
    for read, size in _single_chances(program, op):
        total += size if any(user not in before and user != op for user in program.users[read]) else 0
    return total


def least_needed(program: PlainProgram, op: OpId, dependencies: Sequence[tuple[OpId, OpId]] = ()) -> int:
    """Return the least of `needed_after` over all closed sets, by a maximum flow; no set gives INFINITE or more.

    `dependencies`, (earlier, later) each, are obeyed beside those of the program.

    Nodes on the source side are ops that ran. A buffer's node is there too when it costs nothing, that is when all its
    users are; to have its producer there without it costs its size.
    """
    flow = PlainMaxFlow(program.n_ops + 2)
    given = ((earlier, later) for later in range(program.n_ops) for earlier in program.predecessors[later])
    for earlier, later in (*given, *dependencies):
        flow.add_edge(flow.SOURCE if later == op else later + 2, earlier + 2, INFINITE)
    flow.add_edge(op + 2, flow.SINK, INFINITE)

    def charge(start: int, size: int, users: list[int]) -> None:
        node = flow.add_node()
        flow.add_edge(start, node, size)
        for user in users:
            flow.add_edge(node, user + 2, INFINITE)

    for buffer, size in enumerate(program.sizes):
        producer, lifetime = program.producers[buffer], program.lifetimes[buffer]
        start = flow.SOURCE if producer < 0 else producer + 2
        if size == 0 or (producer < 0 and lifetime != Lifetime.DONATED):
            continue
        if lifetime == Lifetime.OUTPUT:
            flow.add_edge(start, flow.SINK, size)
        else:
            charge(start, size, program.users[buffer])
    for read, size in _single_chances(program, op):
        charge(flow.SOURCE, size, [user for user in program.users[read] if user != op])
    return _fixed(program, op) + flow.run()


def _fixed(program: PlainProgram, op: OpId) -> int:
    """Return what is needed in any case; every result that might be written into an operand is left out."""
    fresh = set(program.allocates[op]) - {written for _, written in program.pairs[op]}
    return program.bytes_of(Lifetime.INPUT) + program.transient[op] + sum(program.sizes[buffer] for buffer in fresh)


def _single_chances(program: PlainProgram, op: OpId) -> list[tuple[int, int]]:
    """Return (operand, size) for results that can be written into one operand only: a saving only if that one dies."""
    operands: dict[int, list[int]] = {}
    for read, written in program.pairs[op]:
        operands.setdefault(written, []).append(read)
    return [(reads[0], program.sizes[written]) for written, reads in operands.items() if len(reads) == 1]
