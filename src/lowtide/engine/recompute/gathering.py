"""What bringing an op's operands together takes: while the last of them is made, all others are there."""

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.lower_bounds import LowerBound, with_callee_floors
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Lifetime
from lowtide.engine.recompute.floor import Floor
from lowtide.engine.recompute.program import Program


def least_bytes(program: Program, floor: Floor) -> int:
    """Return what no plan of runs and reruns beats for a base order: its floor, or what gathering operands takes."""
    return max(floor.peak_bytes, least_to_gather(program.problem, program.space).peak_bytes)


def least_to_gather(problem: Problem, space: SpaceId) -> LowerBound:
    """Return a peak in a memory space that no plan of runs and reruns beats, in any order; copies elsewhere may.

    Before an op runs, one of its operands was made last. While its producer ran, the other operands of the op were
    there, beside all that the producer touches, allocates and needs as scratch, less what in-place pairs may save that
    spare those operands. The best case counts, and the op for which that is worst. Ops are looked at from the one that
    may need most, so that few are in practice. O(n + e) for that, and O(operands * accesses of their producers) an op.
    """
    graph, structure = problem.graph, problem.graph.structure
    sizes = np.where((graph.buffer_spaces == space) & ~graph.persistent, graph.sizes, 0)
    staying = graph.lifetimes == Lifetime.INPUT
    always = int(sizes[staying].sum())
    moving = np.where(staying, 0, sizes)
    scratch = with_callee_floors(problem).transient[:, space]
    touched, own = np.zeros(graph.n_ops, np.int64), scratch.astype(np.int64)
    np.add.at(touched, structure.touches.owners(), moving[structure.touches.values])
    np.add.at(own, structure.allocates.owners(), moving[structure.allocates.values])
    own += touched

    producers = structure.producers[structure.touches.values]
    is_made = producers >= 0
    unknown = np.iinfo(np.int64).max
    easiest = np.full(graph.n_ops, unknown)
    np.minimum.at(easiest, structure.touches.owners()[is_made], own[producers[is_made]])
    most = np.where(easiest < unknown, touched + np.where(easiest < unknown, easiest, 0), 0)

    def at_last(op: OpId, last: BufferId) -> int:
        """Return what is there while the last operand of an op is made, beside inputs that stay."""
        producer, operands = int(structure.producers[last]), structure.touches[op].tolist()
        there = {*operands, *structure.touches[producer].tolist(), *structure.allocates[producer].tolist()}
        pairs: list[int] = graph.in_place[producer].tolist() if problem.in_place else []
        paired = {written for read, written in zip(pairs[::2], pairs[1::2], strict=True) if read not in operands}
        return int(moving[list(there)].sum() + scratch[producer] - sizes[list(paired)].sum())

    worst = LowerBound(space=graph.spaces[space].name, peak_bytes=always, op=None)
    for op in np.argsort(-most, kind="stable").tolist():
        if always + most[op] <= worst.peak_bytes:
            break
        made = [buffer for buffer in structure.touches[op].tolist() if structure.producers[buffer] >= 0]
        least = always + min(at_last(op, buffer) for buffer in made)
        if least > worst.peak_bytes:
            worst = LowerBound(space=worst.space, peak_bytes=least, op=op)
    return worst
