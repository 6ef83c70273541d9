"""The link to the host, scaled to the machine that op costs assume."""

from collections.abc import Iterable

from lowtide.core.errors import UsageError
from lowtide.core.units import given_bytes, parse_bandwidth, parse_bytes
from lowtide.engine.costs import PLAIN_MACHINE
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.frameworks.torch.internals.runtime import memory_clock

_USUAL_SHARE = 1 / 64
"""PCIe speed by memory speed: 25 GB/s to 2 TB/s, 50 GB/s to 3.3 TB/s."""


def check_host(allow: Iterable[str] | None, bandwidth: str | int | None, capacity: str | int | None) -> None:
    """Raise UsageError for host settings that are invalid or lack "offload" in `allow`."""
    if "offload" not in (allow or ()) and (bandwidth, capacity) != (None, None):
        raise UsageError("host_bandwidth and host_capacity need offload; add 'offload' to allow, or omit them")
    if capacity is not None:
        given_bytes(capacity)
    if bandwidth is not None and _speed(bandwidth) <= 0:
        raise UsageError(f"host_bandwidth {bandwidth!r} is not a speed; give more than 0, like '25 GB/s'")


def host_for(graph: Graph, bandwidth: str | int | None, capacity: str | int | None) -> Host:
    """Return the host for a graph. Its first memory space is named after its device.

    `bandwidth` is the link's speed each way, "25 GB/s" or bytes per second; by default 1/64 of the memory's. On a GPU
    it is scaled to the slower machine that op costs assume. `capacity` limits the program's bytes on the host. Raises
    UsageError for unreadable values.
    """
    most = None if capacity is None else parse_bytes(capacity)
    plain = PLAIN_MACHINE.bytes_per_second
    speed = plain * _USUAL_SHARE if bandwidth is None else _speed(bandwidth) * plain / _memory_speed(graph)
    return Host(bandwidth_bytes_per_s=speed, capacity_bytes=most)


def _speed(bandwidth: str | int) -> int:
    return bandwidth if isinstance(bandwidth, int) else parse_bandwidth(bandwidth)


def _memory_speed(graph: Graph) -> float:
    """Return bytes per second, of the plain machine if unknown."""
    device = graph.spaces[0].name
    clock, bus = memory_clock(device) if device.startswith("cuda") else (0, 0)
    return 2e3 * clock * bus / 8 or PLAIN_MACHINE.bytes_per_second  # two transfers a cycle
