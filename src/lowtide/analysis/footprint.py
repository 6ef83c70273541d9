"""The simulator: live bytes at every step of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime
from lowtide.graph.transient import transient_bytes
from lowtide.plan import HOME, Plan, StepKind

_KnownPeaks = dict[tuple[int, int], dict[str, int]]
"""Peaks of callees by the identity of their graph and plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """Live bytes over a plan, persistent buffers left out."""

    spaces: tuple[str, ...]
    live: NDArray[np.int64]
    """Shape (steps + 1, spaces): row 0 before the first step; row s + 1 in step s, after its allocations and with its
    scratch, before anything is freed."""

    @property
    def peak_bytes(self) -> dict[str, int]:
        """The peak of every space."""
        return dict(zip(self.spaces, self.live.max(axis=0).tolist(), strict=True))

    @property
    def peak_steps(self) -> dict[str, int]:
        """Per space, the first step that reaches the peak; -1 means before the first step."""
        return dict(zip(self.spaces, (self.live.argmax(axis=0) - 1).tolist(), strict=True))


def simulate(graph: Graph, plan: Plan) -> Footprint:
    """Play a plan and record the live bytes of every step. O(steps + e).

    A step has three instants: allocate outputs and scratch, run, free what is dead. Callees count with the peak of
    their own plan, or of their program order where the plan has none. The plan is trusted: check it with `verify`.
    """
    return _simulate(graph, plan, {})


def _simulate(graph: Graph, plan: Plan, known: _KnownPeaks) -> Footprint:
    transient = transient_bytes(graph, _callee_peaks(graph, plan.callees, {}, known))
    has_transient: list[bool] = np.any(transient, axis=1).tolist()
    sizes, homes = graph.sizes.tolist(), graph.buffer_spaces.tolist()
    persistent = (graph.lifetimes == Lifetime.PERSISTENT).tolist()
    resident = (graph.lifetimes <= Lifetime.DONATED).tolist()
    kinds: list[int] = plan.kinds.tolist()
    targets: list[int] = plan.targets.tolist()
    spaces: list[int] = plan.spaces.tolist()
    allocates = list(graph.structure.allocates)
    pairs = list(plan.pairs)

    n_spaces = len(graph.spaces)
    at_start = (graph.lifetimes == Lifetime.INPUT) | (graph.lifetimes == Lifetime.DONATED)
    now = [int(graph.sizes[at_start & (graph.buffer_spaces == space)].sum()) for space in range(n_spaces)]
    live = np.zeros((plan.n_steps + 1, n_spaces), np.int64)
    live[0] = now
    for step, (kind, target, space) in enumerate(zip(kinds, targets, spaces, strict=True)):
        if kind == StepKind.RUN:
            taken = pairs[step]
            for buffer in taken[::2]:
                now[homes[buffer]] -= sizes[buffer]
                resident[buffer] = False
            momentary: list[int] = []
            for buffer in allocates[target]:
                now[homes[buffer]] += sizes[buffer]
                if resident[buffer]:  # a rerun writes beside the copy that is still there
                    momentary.append(buffer)
                resident[buffer] = True
            live[step + 1] = now
            if has_transient[target]:
                live[step + 1] += transient[target]
            for buffer in momentary:
                now[homes[buffer]] -= sizes[buffer]
        else:
            place = homes[target] if space == HOME or kind == StepKind.COPY_IN else space
            if place == homes[target]:
                resident[target] = kind != StepKind.FREE
            if place != homes[target] or not persistent[target]:
                now[place] += -sizes[target] if kind == StepKind.FREE else sizes[target]
            live[step + 1] = now
    return Footprint(tuple(space.name for space in graph.spaces), live)


def callee_peaks(
    graph: Graph, plans: Mapping[str, Plan], settled: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Mapping[str, int]]:
    """Return the peak of every callee by name: settled already, under its plan, or in its program order."""
    return _callee_peaks(graph, plans, settled or {}, {})


def _callee_peaks(
    graph: Graph, plans: Mapping[str, Plan], settled: Mapping[str, Mapping[str, int]], known: _KnownPeaks
) -> dict[str, Mapping[str, int]]:
    """Play every callee that is not known yet: one that many graphs call is played once."""
    peaks: dict[str, Mapping[str, int]] = dict(settled)
    for name in dict.fromkeys(name for names in graph.callees for name in names):
        if name not in peaks:
            callee, plan = graph.subgraphs[name], plans.get(name)
            key = (id(callee), id(plan))  # both stay alive through their owners
            if key not in known:
                known[key] = _simulate(callee, plan or Plan.baseline(callee), known).peak_bytes
            peaks[name] = known[key]
    return peaks
