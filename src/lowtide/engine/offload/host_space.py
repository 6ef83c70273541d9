"""The host memory space, and its speed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId, SpaceId
from lowtide.engine.costs.devices import Device
from lowtide.engine.graph import Graph, Space

HOST = "host"
_USUAL_MEMORY = 1.6
"""Speed of the host's memory by that of its link: 51.2 GB/s to 32 GB/s per device in a DGX A100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host to add to a program's first memory space."""

    bandwidth_bytes_per_s: float
    """Speed of the link in each direction."""
    capacity_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    """Speed of its memory for one device; by default 1.6 times the link's speed."""

    @property
    def update_bytes_per_s(self) -> float:
        """Bytes per second that updates on the host read and write."""
        usual = _USUAL_MEMORY * self.bandwidth_bytes_per_s
        return usual if self.memory_bytes_per_s is None else self.memory_bytes_per_s

    def added_to(self, graph: Graph) -> Graph:
        """Return the graph with this host; see `with_host_space`."""
        return with_host_space(graph, self.bandwidth_bytes_per_s, self.capacity_bytes)


def host_of_device(device: Device) -> Host:
    return Host(
        bandwidth_bytes_per_s=device.host_bytes_per_second, memory_bytes_per_s=device.host_memory_bytes_per_second
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two memory spaces with a copy stream in each direction."""

    device: SpaceId
    host: SpaceId
    out_bytes_per_s: float
    back_bytes_per_s: float


def with_host_space(graph: Graph, bandwidth_bytes_per_s: float, capacity_bytes: int | None = None) -> Graph:
    """Return the graph with a memory space "host", linked to its first space with this speed in each direction.

    At a speed of 0, nothing is offloaded. The host is part of the fingerprint, so plans are applied and verified with
    this graph. Raises UsageError if the graph has a host, and for a negative speed or capacity.
    """
    if not bandwidth_bytes_per_s >= 0:
        raise UsageError(f"the bandwidth to the host is {bandwidth_bytes_per_s}; give bytes per second, at least 0")
    if capacity_bytes is not None and capacity_bytes < 0:
        raise UsageError(f"the host capacity is {capacity_bytes} bytes; give at least 0")
    if any(space.name == HOST for space in graph.spaces):
        raise UsageError(f"graph {graph.name!r} already has a memory space {HOST!r}; plan with it")
    first, speed = graph.spaces[0], float(bandwidth_bytes_per_s)
    to_host, back = ({HOST: speed}, {first.name: speed}) if speed else ({}, {})
    device = replace(first, bandwidth_bytes_per_s={**first.bandwidth_bytes_per_s, **to_host})
    host = Space(name=HOST, capacity_bytes=capacity_bytes, bandwidth_bytes_per_s=back)
    return replace(graph, spaces=(device, *graph.spaces[1:], host))


def with_state_on_host(graph: Graph, state: Sequence[BufferId], memory_bytes_per_s: float | None = None) -> Graph:
    """Return a graph with its host as the home of persistent buffers.

    Copying ops and updates on the host, at `memory_bytes_per_s`, take no device time. Only copies of parameters may be
    repeated.
    """
    host = next(number for number, space in enumerate(graph.spaces) if space.name == HOST)
    spaces = graph.buffer_spaces.copy()
    spaces[list(state)] = host
    moved = replace(graph, buffer_spaces=spaces)
    if memory_bytes_per_s is not None:
        moved = replace(moved, spaces=_with_memory_speed(graph.spaces, host, memory_bytes_per_s))
    pure = np.where(moved.off_device, moved.copies_parameters, graph.pure)
    return replace(moved, pure=pure, cost=np.where(moved.off_device, 0.0, graph.cost))


def _with_memory_speed(spaces: Sequence[Space], host: SpaceId, speed: float) -> tuple[Space, ...]:
    memory = {**spaces[host].bandwidth_bytes_per_s, HOST: speed}
    return (*spaces[:host], replace(spaces[host], bandwidth_bytes_per_s=memory), *spaces[host + 1 :])


def find_link(graph: Graph, device: SpaceId) -> Link | None:
    """Return the link between a space and the first one with copies both ways."""
    home = graph.spaces[device]
    for number, other in enumerate(graph.spaces):
        out, back = home.bandwidth_bytes_per_s.get(other.name, 0.0), other.bandwidth_bytes_per_s.get(home.name, 0.0)
        if number != device and out > 0 and back > 0:
            return Link(device=device, host=number, out_bytes_per_s=float(out), back_bytes_per_s=float(back))
    return None
