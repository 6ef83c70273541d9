"""A roofline model of a machine."""

from dataclasses import dataclass, fields

from lowtide.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A roofline model; raises UsageError if a figure is not positive."""

    bytes_per_second: float
    flops_per_second: float
    start_seconds: float
    link_bytes_per_second: float = 1.25e9
    """Bandwidth within a node."""
    network_bytes_per_second: float = 1.25e9
    """Bandwidth to other nodes."""
    devices_per_node: int = 1

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not 0 < value < float("inf"):
                raise UsageError(f"machine with {entry.name} {value}; give a positive number")

    def seconds(self, traffic_bytes: float, flops: float) -> float:
        return self.start_seconds + max(traffic_bytes / self.bytes_per_second, flops / self.flops_per_second)

    def collective_seconds(self, sent_bytes: float, rank_span: int) -> float:
        within = rank_span <= self.devices_per_node
        speed = self.link_bytes_per_second if within else self.network_bytes_per_second
        return self.start_seconds + sent_bytes / speed


PLAIN_MACHINE = Machine(bytes_per_second=1e10, flops_per_second=1e11, start_seconds=2e-6)
"""100 GFLOP/s, 10 GB/s, 10 Gbit/s network. Plans depend only on ratios."""
