"""The machine that prices are estimated for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A roofline: an op takes its start plus the larger of its memory traffic and its arithmetic."""

    bytes_per_second: float
    flops_per_second: float
    start_seconds: float
    """What starting one op takes, however small it is."""

    def seconds(self, traffic_bytes: float, flops: float) -> float:
        """Return how long an op takes that moves so many bytes and does so many floating-point operations."""
        return self.start_seconds + max(traffic_bytes / self.bytes_per_second, flops / self.flops_per_second)


PLAIN_MACHINE = Machine(bytes_per_second=1e10, flops_per_second=1e11, start_seconds=2e-6)
"""A plain machine of 100 GFLOP/s and 10 GB/s. Plans depend only on ratios: ten operations a byte are common."""
