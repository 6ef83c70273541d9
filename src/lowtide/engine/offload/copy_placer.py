"""Place frees and copies so that copies hide."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, Place
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.offload.host_space import Link
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step


class CopyPlacer:
    """Places frees and copies; runs keep their order."""

    def __init__(
        self, graph: Graph, callees: Mapping[str, Plan], link: Link, seconds: NDArray[np.float64], budget_bytes: int
    ) -> None:
        self._graph, self._callees, self._link, self._budget = graph, callees, link, budget_bytes
        self._seconds: list[float] = seconds.tolist()
        self._sizes: list[int] = graph.sizes.tolist()
        self._touches: list[list[BufferId]] = list(graph.structure.touches)

    def plan(self, steps: Sequence[Step]) -> Plan:
        return replace(Plan.from_steps(self._graph, steps), callees=dict(self._callees))

    def free_late(self, steps: Sequence[Step]) -> tuple[list[Step], list[float]]:
        """Delay frees of buffers being copied out, until the copy ends or the bytes are needed. O(steps).

        Returns the steps and the start of each run without stalls.
        """
        live = self._live(steps)
        now = stream = 0.0
        done: dict[BufferId, float] = {}
        leaving: dict[BufferId, float] = {}  # in the order their copies end
        extra = 0
        moved: list[Step] = []
        starts: list[float] = []
        for step, need in zip(steps, live, strict=True):
            if isinstance(step, (Run, CopyIn)):
                if isinstance(step, CopyIn) and leaving.pop(step.buffer, None) is not None:
                    extra -= self._sizes[step.buffer]
                    continue
                for buffer in sorted(leaving, key=lambda buffer: (leaving[buffer], buffer)):
                    if leaving[buffer] > now and need + extra <= self._budget:
                        break
                    now = max(now, leaving.pop(buffer))
                    extra -= self._sizes[buffer]
                    moved.append(Free(buffer))
                if isinstance(step, Run):
                    starts.append(now)
                    now += self._seconds[step.op]
            elif isinstance(step, CopyOut):
                stream = max(stream, now) + self._sizes[step.buffer] / self._link.out_bytes_per_s
                done[step.buffer] = stream
            elif step.space is None and done.get(step.buffer, 0.0) > now:
                leaving[step.buffer] = done[step.buffer]
                extra += self._sizes[step.buffer]
                continue
            moved.append(step)
        return [*moved, *(Free(buffer) for buffer in leaving)], starts

    def prefetch_early(self, steps: Sequence[Step], starts: Sequence[float]) -> list[Step]:
        """Start every prefetch as late as it still hides, or later, once its bytes are free.

        Complexity: O(steps + copies * runs moved over).
        """
        live = self._live(steps)
        run_live = np.asarray([need for step, need in zip(steps, live, strict=True) if isinstance(step, Run)], np.int64)
        run_starts = [*starts, float("inf")] if not starts else [*starts, starts[-1]]
        ordinal = 0
        gone: dict[BufferId, Place] = {}
        # per prefetch: first run it may precede, run it must precede, the copy
        prefetches: list[tuple[Place, Place, CopyIn]] = []
        for step in steps:
            match step:
                case Run():
                    ordinal += 1
                case Free(buffer, None):
                    gone[buffer] = ordinal
                case CopyIn(buffer):
                    prefetches.append((gone.get(buffer, 0), ordinal, step))
                case _:
                    pass
        before: dict[Place, list[Step]] = {}
        stream_start = float("inf")
        for earliest, needed, copy in reversed(prefetches):
            size = self._sizes[copy.buffer]
            start = min(stream_start, run_starts[needed]) - size / self._link.back_bytes_per_s
            place = min(needed, max(earliest, bisect_right(run_starts, start, 0, needed + 1) - 1))
            too_full = np.flatnonzero(run_live[place:needed] > self._budget - size)
            if len(too_full):
                place += int(too_full[-1]) + 1
            run_live[place:needed] += size
            stream_start = min(stream_start, max(start, run_starts[place]))
            before.setdefault(place, []).insert(0, copy)
        return self._merge(steps, before)

    def _merge(self, steps: Sequence[Step], before: Mapping[Place, Sequence[Step]]) -> list[Step]:
        prefetched = {step.buffer for step in steps if isinstance(step, CopyIn)}
        merged: list[Step] = []
        ordinal = 0
        unused: dict[BufferId, Free] = {}
        for step in steps:
            match step:
                case Run(op):
                    merged += before.get(ordinal, [])
                    merged.append(step)
                    merged += [unused.pop(buffer) for buffer in self._touches[op] if buffer in unused]
                    ordinal += 1
                case Free(buffer, space) if space is not None:
                    if buffer in prefetched:
                        unused[buffer] = step
                case CopyIn():
                    pass
                case CopyOut(buffer) if buffer not in prefetched:
                    pass
                case _:
                    merged.append(step)
        return [*merged, *before.get(ordinal, []), *unused.values()]

    def _live(self, steps: Sequence[Step]) -> list[int]:
        return simulate(self._graph, self.plan(steps)).live[1:, self._link.device].tolist()
