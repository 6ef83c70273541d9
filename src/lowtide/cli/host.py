"""A host beside the device, where the program itself names none: what `--host-bandwidth` and `--host-capacity` add."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lowtide.cli.sizes import parse_size
from lowtide.core.errors import UsageError
from lowtide.core.units import parse_bandwidth
from lowtide.engine.offload import Host

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


def host_of(bandwidth: int | None, capacity: int | None) -> Host | None:
    """Return the host that the options describe; None where they name none."""
    if bandwidth is not None:
        return Host(bandwidth_bytes_per_s=bandwidth, capacity_bytes=capacity)
    if capacity is not None:
        raise UsageError("--host-capacity is of the host that --host-bandwidth adds; give both, or neither")
    return None
