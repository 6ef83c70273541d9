"""The machine that prices are estimated for."""

from dataclasses import dataclass, fields

from lowtide.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A roofline: an op takes its start plus the larger of its memory traffic and its arithmetic.

    Raises UsageError for a figure that is not positive.
    """

    bytes_per_second: float
    flops_per_second: float
    start_seconds: float
    """What starting one op takes, however small it is."""
    link_bytes_per_second: float = 1.25e9
    """What every device sends to the others of its node, all of them at once."""
    network_bytes_per_second: float = 1.25e9
    """What every device sends to other nodes, all of them at once."""
    devices_per_node: int = 1

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not 0 < value < float("inf"):
                raise UsageError(f"a machine with {entry.name} {value} prices nothing; give a positive number")

    def seconds(self, traffic_bytes: float, flops: float) -> float:
        """Return how long an op takes that moves so many bytes and does so many floating-point operations."""
        return self.start_seconds + max(traffic_bytes / self.bytes_per_second, flops / self.flops_per_second)

    def collective_seconds(self, sent_bytes: float, rank_span: int) -> float:
        """Return how long a collective takes in which every rank sends so many bytes to others of a group.

        The group has `rank_span` ranks from its first to its last: more than a node has cross the network.
        """
        within = rank_span <= self.devices_per_node
        speed = self.link_bytes_per_second if within else self.network_bytes_per_second
        return self.start_seconds + sent_bytes / speed


PLAIN_MACHINE = Machine(bytes_per_second=1e10, flops_per_second=1e11, start_seconds=2e-6)
"""A plain machine of 100 GFLOP/s and 10 GB/s, on a network of 10 Gbit/s. Plans depend only on ratios: ten operations a
byte are common."""
