"""What planning with recomputation and offload gives."""

from dataclasses import dataclass

from lowtide.recompute.result import RecomputeResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffloadResult(RecomputeResult):
    """A verified plan that runs ops again and copies buffers to the host, with its slow-down in seconds.

    `extra_cost` is the slow-down of the plan's timeline: what runs again and what waits. `cuts` holds what the plan
    without copies drops, to start another search from.
    """

    rerun_seconds: float
    """What runs again."""
    stall_seconds: float
    """How long compute waits for copies."""
    hidden_seconds: float
    """Transfer time during which compute is busy too."""
    offloaded_bytes: int
    """What is copied to the host."""
