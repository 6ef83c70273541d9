"""A host beside the device, where the program itself names none: what `--host-bandwidth` and `--host-capacity` add."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import click

from lowtide.cli.options import parse_size
from lowtide.costs import Prices, carries_costs, read_costs
from lowtide.errors import UsageError
from lowtide.frameworks.model import Model
from lowtide.graph import Graph
from lowtide.models import open_model
from lowtide.offload import Host
from lowtide.units import parse_bandwidth

Command = TypeVar("Command", bound=Callable[..., Any])
_MOST_BYTES_PER_S = 2**62


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    speed = parse_bandwidth(text)
    if not 0 < speed <= _MOST_BYTES_PER_S:
        raise UsageError(f"--host-bandwidth {text} is no speed of a link; write it like 25GB/s, more than 0")
    return speed


def options(command: Command) -> Command:
    """Add the options that describe a host."""
    bandwidth = click.option(
        "--host-bandwidth",
        metavar="SPEED",
        callback=_parse_bandwidth,
        help="Add a host to copy to and from, at this speed each way, like 25GB/s.",
    )
    capacity = click.option(
        "--host-capacity", metavar="SIZE", callback=parse_size, help="What that host holds, like 64GiB."
    )
    return bandwidth(capacity(command))


def open_with_host(model: str, dims: Mapping[str, int], host_bandwidth: int | None, host_capacity: int | None) -> Model:
    """Open a program, with a host beside it where the user named a bandwidth to one."""
    if host_bandwidth is None:
        if host_capacity is not None:
            raise UsageError("--host-capacity is of the host that --host-bandwidth adds; give both, or neither")
        return open_model(model, dims)
    return open_model(model, dims, Host(bandwidth_bytes_per_s=host_bandwidth, capacity_bytes=host_capacity))


def priced(graph: Graph, costs: str, allow: AbstractSet[str]) -> Prices:
    """Price a graph as the user asks for, by a profile or a costs file.

    Raises UsageError where offload would weigh transfers in seconds against ops that nobody has priced.
    """
    if "offload" in allow and costs == "given" and not carries_costs(graph):
        raise UsageError(
            f"graph {graph.name!r} does not say how long its ops take, which offload needs; add --costs eager, or a "
            "costs file"
        )
    return read_costs(costs, graph)
