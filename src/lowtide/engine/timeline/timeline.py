"""The timeline of a plan."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

COMPUTE = 0
COLLECTIVES = "collectives"
NO_STREAM = -1
"""The stream of frees, which take no time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Timeline:
    """Start and duration of every step, in seconds."""

    profile: str
    streams: tuple[str, ...]
    """"compute", then "source -> destination" for copies and "collectives", by first use."""
    step_streams: NDArray[np.int8]
    """Position in `streams`, or NO_STREAM."""
    starts: NDArray[np.float64]
    durations: NDArray[np.float64]
    stalls: NDArray[np.float64]
    """Time that compute waits before the step."""
    final_stall: float
    """From the last step to the end."""
    base_seconds: float
    """Time to run every op once."""

    @property
    def ends(self) -> NDArray[np.float64]:
        return self.starts + self.durations

    @cached_property
    def compute_seconds(self) -> float:
        return self._busy(COMPUTE)

    @cached_property
    def stall_seconds(self) -> float:
        """Total time that compute waits."""
        return math.fsum([*self.stalls.tolist(), self.final_stall])

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.stall_seconds

    @property
    def extra_seconds(self) -> float:
        """Time beyond every op once on the compute stream."""
        return self.compute_seconds - self.base_seconds + self.stall_seconds

    @cached_property
    def hidden_seconds(self) -> float:
        """Time of copies while compute is busy, summed. O(steps)."""
        return self._beside_compute((self.step_streams > COMPUTE) & (self.step_streams != self._of_collectives))

    @cached_property
    def collective_seconds(self) -> float:
        return self._busy(self._of_collectives)

    @cached_property
    def exposed_seconds(self) -> float:
        """Time of collectives while compute waits. O(steps)."""
        return self.collective_seconds - self._beside_compute(self.step_streams == self._of_collectives)

    @property
    def _of_collectives(self) -> int:
        return self.streams.index(COLLECTIVES) if COLLECTIVES in self.streams else len(self.streams)

    def _beside_compute(self, steps: NDArray[np.bool_]) -> float:
        computes = self.step_streams == COMPUTE
        if not computes.any():
            return 0.0
        starts, durations = self.starts[computes], self.durations[computes]
        # Compute time passed is piecewise linear.
        instants = np.column_stack([starts, starts + durations]).ravel()
        passed = np.concatenate([[0.0], np.cumsum(durations)])
        passed = np.column_stack([passed[:-1], passed[1:]]).ravel()
        overlap = np.interp(self.ends[steps], instants, passed) - np.interp(self.starts[steps], instants, passed)
        return math.fsum(overlap.tolist())

    def _busy(self, stream: int) -> float:
        return math.fsum(self.durations[self.step_streams == stream].tolist())
