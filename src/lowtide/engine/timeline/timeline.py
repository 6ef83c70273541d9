"""What the event simulation of a plan says."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

COMPUTE = 0
"""The stream that runs ops; every other stream copies in one direction, or runs collectives."""
COLLECTIVES = "collectives"
"""The name of the stream that runs ops of several ranks, where these are apart."""
NO_STREAM = -1
"""Stored for steps that take no time on any stream: frees."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """When every step of a plan starts and ends, in seconds from the start of the plan.

    Arrays have one entry per step. The program itself stands at a step from `starts - stalls` (runs and frees) on;
    copies start on their stream when the data and the stream are ready, while the program goes on.
    """

    profile: str
    """The cost profile that priced the ops."""
    streams: tuple[str, ...]
    """"compute", then one "source -> destination" per pair of memory spaces that the plan copies between, and
    "collectives", as they come."""
    step_streams: NDArray[np.int8]
    """The stream of every step, a position in `streams`, or NO_STREAM."""
    starts: NDArray[np.float64]
    durations: NDArray[np.float64]
    """How long every step occupies its stream; 0 for frees."""
    stalls: NDArray[np.float64]
    """How long the compute stream stands still before the step: a run that waits for data, a free that waits for a
    copy of what it frees."""
    final_stall: float
    """How long the plan waits after its last step for what is still under way."""
    base_seconds: float
    """What running every op once takes, one after the other and without any wait."""

    @property
    def ends(self) -> NDArray[np.float64]:
        """When every step ends."""
        return self.starts + self.durations

    @cached_property
    def compute_seconds(self) -> float:
        """What all runs take but for collectives that are apart, repeated ones included."""
        return self._busy(COMPUTE)

    @cached_property
    def stall_seconds(self) -> float:
        """How long the compute stream stands still altogether."""
        return math.fsum([*self.stalls.tolist(), self.final_stall])

    @property
    def seconds(self) -> float:
        """What the whole plan takes."""
        return self.compute_seconds + self.stall_seconds

    @property
    def extra_seconds(self) -> float:
        """What the plan takes beyond running every op once; what runs apart beside compute is not in it."""
        return self.compute_seconds - self.base_seconds + self.stall_seconds

    @cached_property
    def busy_seconds(self) -> Mapping[str, float]:
        """How long every stream is busy, by name."""
        return {name: self._busy(stream) for stream, name in enumerate(self.streams)}

    @cached_property
    def hidden_seconds(self) -> float:
        """Transfer time during which the compute stream is busy too, summed over all copies. O(steps)."""
        return self._beside_compute((self.step_streams > COMPUTE) & (self.step_streams != self._of_collectives))

    @cached_property
    def collective_seconds(self) -> float:
        """What collectives that are apart take, repeated ones included."""
        return self._busy(self._of_collectives)

    @cached_property
    def exposed_seconds(self) -> float:
        """How long collectives run while compute stands still. O(steps)."""
        return self.collective_seconds - self._beside_compute(self.step_streams == self._of_collectives)

    @property
    def _of_collectives(self) -> int:
        return self.streams.index(COLLECTIVES) if COLLECTIVES in self.streams else len(self.streams)

    def _beside_compute(self, steps: NDArray[np.bool_]) -> float:
        """Return the time of some steps during which the compute stream is busy too."""
        computes = self.step_streams == COMPUTE
        if not computes.any():
            return 0.0
        starts, durations = self.starts[computes], self.durations[computes]
        # compute time that has passed at any instant: piecewise linear through the start and end of every run
        instants = np.column_stack([starts, starts + durations]).ravel()
        passed = np.concatenate([[0.0], np.cumsum(durations)])
        passed = np.column_stack([passed[:-1], passed[1:]]).ravel()
        overlap = np.interp(self.ends[steps], instants, passed) - np.interp(self.starts[steps], instants, passed)
        return math.fsum(overlap.tolist())

    def _busy(self, stream: int) -> float:
        return math.fsum(self.durations[self.step_streams == stream].tolist())
