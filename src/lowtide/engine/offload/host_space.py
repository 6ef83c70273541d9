"""The memory space that buffers are offloaded to, and how fast copies go there and back."""

import warnings
from dataclasses import dataclass, replace

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph import Graph, Space

HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host to put beside a program's first memory space."""

    bandwidth_bytes_per_s: float
    """The speed of the link, each way."""
    capacity_bytes: int | None = None

    def added_to(self, graph: Graph) -> Graph:
        """Return the graph with this host, as `with_host_space` does."""
        return with_host_space(graph, self.bandwidth_bytes_per_s, self.capacity_bytes)

    def beside(self, graph: Graph) -> Graph:
        """Return `added_to(graph)`; the old name, which goes in the next release."""
        warnings.warn("Host.beside is now Host.added_to; use that name", DeprecationWarning, stacklevel=2)
        return self.added_to(graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two memory spaces with a stream of copies each way."""

    device: SpaceId
    host: SpaceId
    out_bytes_per_s: float
    back_bytes_per_s: float


def with_host_space(graph: Graph, bandwidth_bytes_per_s: float, capacity_bytes: int | None = None) -> Graph:
    """Return the graph with a memory space "host" that its first space copies to and from at the given speed each way.

    No buffer lives there. At a speed of 0 there are no streams, and nothing is ever offloaded. Memory spaces are part
    of the fingerprint: what is planned for the graph with a host is applied and verified with that graph.
    Raises UsageError for a graph that has a space of that name, and for a speed or a capacity below zero.
    """
    if not bandwidth_bytes_per_s >= 0:
        raise UsageError(f"the bandwidth to the host is {bandwidth_bytes_per_s}; give bytes per second, at least 0")
    if capacity_bytes is not None and capacity_bytes < 0:
        raise UsageError(f"the host holds {capacity_bytes} bytes; give a capacity of at least 0")
    if any(space.name == HOST for space in graph.spaces):
        raise UsageError(f"graph {graph.name!r} has a memory space {HOST!r} already; plan with that one")
    first, speed = graph.spaces[0], float(bandwidth_bytes_per_s)
    to_host, back = ({HOST: speed}, {first.name: speed}) if speed else ({}, {})
    device = replace(first, bandwidth_bytes_per_s={**first.bandwidth_bytes_per_s, **to_host})
    host = Space(name=HOST, capacity_bytes=capacity_bytes, bandwidth_bytes_per_s=back)
    return replace(graph, spaces=(device, *graph.spaces[1:], host))


def find_link(graph: Graph, device: SpaceId, host: SpaceId | None = None) -> Link | None:
    """Return the link between a space and a host, or None where copies cannot go both ways.

    Without `host`, that is the first space that copies go to and come from.
    """
    spaces = graph.spaces
    for other in range(len(spaces)) if host is None else (host,):
        out = spaces[device].bandwidth_bytes_per_s.get(spaces[other].name, 0.0)
        back = spaces[other].bandwidth_bytes_per_s.get(spaces[device].name, 0.0)
        if other != device and out > 0 and back > 0:
            return Link(device=device, host=other, out_bytes_per_s=float(out), back_bytes_per_s=float(back))
    return None
