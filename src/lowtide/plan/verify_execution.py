"""The second stage of verification: play every step and check each rule of execution; the result is the peak."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.errors import VerificationError
from lowtide.graph import Graph, Lifetime
from lowtide.graph.reruns import may_run_twice, why_not_twice
from lowtide.index_spaces import BufferId, StepIndex
from lowtide.plan.plan import Plan
from lowtide.plan.versions import ABSENT, describe_version, version_arrays


@dataclass(frozen=True, slots=True)
class Peak:
    """The most live bytes of one memory space, persistent buffers left out."""

    bytes: int
    step: StepIndex
    """The first step that reaches it; -1 means before the first step."""


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """What an executable plan takes."""

    peaks: list[Peak]
    """Per memory space."""
    residencies: NDArray[np.int64]
    """Every residency with bytes that the peak counts, shape (n, 5): the columns are those of `Addresses`, with the row
    that a residency takes its storage over from, or -1, in place of its offset."""


class Rule(IntEnum):
    """The rules that a step can break; the numbers are those of the kernel."""

    NONE_BROKEN = 0
    MAY_NOT_RUN_TWICE = 1
    CONTROL_PREDECESSOR = 2
    PROGRAM_ORDER = 3
    CONTENTS = 4
    PAIRS_SHARE = 5
    PAIR_NOT_OFFERED = 6
    PAIR_MUST_STAY = 7
    PAIR_DIFFERS = 8
    PAIR_HAS_STORAGE = 9
    FREE_NOT_THERE = 10
    FREE_NO_COPY = 11
    OUT_TO_HOME = 12
    OUT_NOT_THERE = 13
    OUT_TWICE = 14
    IN_NO_COPY = 15
    IN_STILL_THERE = 16
    NEVER_RAN = 17
    LEFT_BEHIND = 18


_WHY = {
    Rule.CONTROL_PREDECESSOR: "op {op} runs before its control predecessor {other_op}; run that first",
    Rule.PROGRAM_ORDER: "ordered op {op} runs after ordered op {other_op}; keep their program order",
    Rule.PAIRS_SHARE: "op {op} takes in-place pairs that share a buffer; each buffer may be in one",
    Rule.PAIR_NOT_OFFERED: "op {op} does not offer {pair}; take only pairs from the graph",
    Rule.PAIR_MUST_STAY: "{pair}: the read buffer must stay resident; only donated and intermediate ones can go",
    Rule.PAIR_DIFFERS: "{pair}: the buffers differ in size or memory space; both must be equal",
    Rule.PAIR_HAS_STORAGE: "{pair}: the written buffer has storage already; it can take over none",
    Rule.FREE_NOT_THERE: "buffer {buffer} is freed in {space}, but is not there",
    Rule.FREE_NO_COPY: "buffer {buffer} is freed in {space}, but has no copy there",
    Rule.OUT_TO_HOME: "buffer {buffer} is copied out to its home space; name another one",
    Rule.OUT_NOT_THERE: "buffer {buffer} is copied out, but is not resident; copy before it is freed",
    Rule.OUT_TWICE: "buffer {buffer} has a copy in {space} already; free that first",
    Rule.IN_NO_COPY: "buffer {buffer} is copied in, but has no copy in {space}",
    Rule.IN_STILL_THERE: "buffer {buffer} is copied in, but is still resident; free it first",
}
"""What is said of a broken rule that needs no more than names."""


def verify_execution(graph: Graph, plan: Plan, transient: NDArray[np.int64]) -> Execution:
    """Play a plan whose ids are in range and return what it takes. O(steps + e).

    `transient` holds the bytes every op needs while it runs, shape (ops, spaces). Raises VerificationError for the
    first step that breaks a rule. The rule for contents covers data, anti- and output dependences at once: an op runs
    only while every buffer it touches is resident in its home space with exactly the version that the op saw in program
    order, and leaves the versions it left there.
    """
    versions = version_arrays(graph)
    played = _native.play_plan(
        versions.first,
        versions.writes_from,
        versions.buffers,
        versions.seen,
        versions.final,
        graph.after.offsets,
        graph.after.values,
        graph.in_place.offsets,
        graph.in_place.values,
        may_run_twice(graph),
        graph.ordered,
        graph.lifetimes,
        graph.sizes,
        graph.buffer_spaces,
        transient.ravel(),
        len(graph.spaces),
        plan.kinds,
        plan.targets,
        plan.spaces,
        plan.pairs.offsets,
        plan.pairs.values,
    )
    if played.broken != Rule.NONE_BROKEN:
        _explain(graph, played)
    peaks = zip(played.peaks.tolist(), played.peak_steps.tolist(), strict=True)
    return Execution([Peak(*peak) for peak in peaks], played.residencies.reshape(-1, 5))


def _explain(graph: Graph, played: _native.PlayedResult) -> NoReturn:
    """Raise the error for the first rule that is broken, with what is to be said of it."""
    rule = Rule(played.broken)
    op = repr(graph.op_names[played.op]) if played.op >= 0 else ""
    buffer = repr(graph.buffer_names[played.buffer]) if played.buffer >= 0 else ""
    if rule == Rule.NEVER_RAN:
        raise VerificationError(f"after the last step: op {op} never ran; run every op at least once")
    if rule == Rule.LEFT_BEHIND:
        what = Lifetime(int(graph.lifetimes[played.buffer])).name.lower()
        difference = _difference(graph, played.buffer, played.wanted, played.found)
        raise VerificationError(f"after the last step: {what} buffer {buffer} {difference}")
    if rule == Rule.MAY_NOT_RUN_TWICE:
        why = f"op {op} runs a second time, but {why_not_twice(graph, played.op)}; run it once"
    elif rule == Rule.CONTENTS:
        difference = _difference(graph, played.buffer, played.wanted, played.found)
        why = f"op {op} touches buffer {buffer}, which {difference}"
    else:
        is_op, is_pair = rule in (Rule.CONTROL_PREDECESSOR, Rule.PROGRAM_ORDER), "{pair}" in _WHY[rule]
        why = _WHY[rule].format(
            op=op,
            buffer=buffer,
            other_op=repr(graph.op_names[played.other]) if is_op else "",
            pair=f"in-place pair {buffer} -> {graph.buffer_names[played.other]!r}" if is_pair else "",
            space=_space(graph, played.space) if played.space >= 0 else "",
        )
    raise VerificationError(f"step {played.step}: {why}")


def _difference(graph: Graph, buffer: BufferId, wanted: int, found: int) -> str:
    if found == ABSENT:
        home = _space(graph, int(graph.buffer_spaces[buffer]))
        return f"is not resident in {home}; write it, copy it in or free it later"
    wanted_as = describe_version(graph, buffer, wanted)
    found_as = describe_version(graph, buffer, found)
    return f"is needed {wanted_as}, but is there {found_as}; keep the program's order of reads and writes"


def _space(graph: Graph, space: int) -> str:
    return f"memory space {graph.spaces[space].name!r}"
