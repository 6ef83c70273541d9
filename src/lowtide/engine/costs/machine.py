"""Machines for cost estimates."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from lowtide.core.errors import UsageError, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A roofline model. Raises UsageError if a figure is not positive."""

    bytes_per_second: float
    flops_per_second: float
    start_seconds: float
    link_bytes_per_second: float = 1.25e9
    """Bandwidth of a device within its node."""
    network_bytes_per_second: float = 1.25e9
    """Bandwidth of a device to other nodes."""
    devices_per_node: int = 1

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not 0 < value < float("inf"):
                raise UsageError(f"machine with {entry.name} {value}; give a positive number")

    def seconds(self, traffic_bytes: float, flops: float) -> float:
        """Return the time of an op: its start plus the larger of memory traffic and arithmetic."""
        return self.start_seconds + max(traffic_bytes / self.bytes_per_second, flops / self.flops_per_second)

    def collective_seconds(self, sent_bytes: float, rank_span: int) -> float:
        """Return the time of a collective, over the network if `rank_span` ranks exceed a node."""
        within = rank_span <= self.devices_per_node
        speed = self.link_bytes_per_second if within else self.network_bytes_per_second
        return self.start_seconds + sent_bytes / speed


PLAIN_MACHINE = Machine(bytes_per_second=1e10, flops_per_second=1e11, start_seconds=2e-6)
"""100 GFLOP/s, 10 GB/s and a network of 10 Gbit/s. Plans depend only on ratios."""


def _accelerator(teraflops: float, terabytes: float, link_gigabytes: float, network_gigabytes: float) -> Machine:
    return Machine(
        bytes_per_second=terabytes * 1e12,
        flops_per_second=teraflops * 1e12,
        start_seconds=3e-6,
        link_bytes_per_second=link_gigabytes * 1e9,
        network_bytes_per_second=network_gigabytes * 1e9,
        devices_per_node=8,
    )


MACHINES: Mapping[str, Machine] = {
    "plain": PLAIN_MACHINE,
    "laptop-cpu": Machine(bytes_per_second=8e10, flops_per_second=1e12, start_seconds=2e-6),
    "a100": _accelerator(312, 2.039, 300, 25),
    "h100": _accelerator(989.4, 3.35, 450, 50),
    "h200": _accelerator(989.4, 4.8, 450, 50),
    "b200": _accelerator(2250, 8, 900, 50),
    "mi300x": _accelerator(1307.4, 5.3, 448, 50),
}
"""Published peak figures: accelerators on boards of eight with dense bfloat16 FLOPs and network adapters of 200 (a100)
or 400 Gbit/s; a laptop with eight cores and two channels of DDR5."""


def machine_named(name: str) -> Machine:
    """Return a machine by name; raises UsageError for an unknown name."""
    if name not in MACHINES:
        raise UsageError(unknown("machine", name, MACHINES))
    return MACHINES[name]
