"""Cost profiles and machines by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.costs.devices import devices
from lowtide.engine.costs.estimates import arithmetic_seconds, eager_seconds, fused_seconds
from lowtide.engine.costs.file_format import read_costs_file
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine
from lowtide.engine.costs.prices import Prices, given_prices
from lowtide.engine.graph import Graph

MACHINES: Mapping[str, Machine] = {
    "plain": PLAIN_MACHINE,
    "laptop-cpu": Machine(bytes_per_second=8e10, flops_per_second=1e12, start_seconds=2e-6),
    "mi300x": Machine(
        bytes_per_second=5.3e12,
        flops_per_second=1.3074e15,
        start_seconds=3e-6,
        link_bytes_per_second=4.48e11,
        network_bytes_per_second=5e10,
        devices_per_node=8,
    ),
    "a100": devices()["a100-80"].machine,
    **{name: device.machine for name, device in devices().items()},
}
"""Published peak figures: devices with dense bfloat16 FLOPs; a laptop with eight cores and two channels of DDR5."""


def machine_named(name: str) -> Machine:
    if name not in MACHINES:
        raise UsageError(unknown("machine", name, MACHINES))
    return MACHINES[name]


ProfileName = Literal["given", "eager", "fused", "flops", "measured"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
"""given: the graph's costs. eager: a kernel per op. fused: pointwise ops nearly free. flops: arithmetic only."""

_ESTIMATES: Mapping[str, Callable[[Graph, Machine], NDArray[np.float64]]] = {
    "eager": eager_seconds,
    "fused": fused_seconds,
    "flops": arithmetic_seconds,
}


def price(
    graph: Graph,
    profile: str,
    *,
    machine: Machine | None = None,
    costs_path: str | Path | None = None,
) -> Prices:
    """Price every op of a graph by a profile, in seconds.

    "measured" reads `costs_path`. Estimates are for `machine`, by default the profile's ("eager@h100") or a plain one.
    Raises UsageError for an unknown profile or machine or a wrong path, MalformedInputError for another graph's file.
    """
    check_profile(profile)
    given, _, named = profile.partition("@")
    machine = machine or (machine_named(named) if named else PLAIN_MACHINE)
    if profile == "measured":
        if costs_path is None:
            raise UsageError("cost profile 'measured' needs the path of a costs file; name it, or choose 'eager'")
        return read_costs_file(costs_path, graph)
    if costs_path is not None:
        raise UsageError(f"cost profile {profile!r} reads no costs file; choose 'measured' to price by {costs_path}")
    return given_prices(graph) if given == "given" else _estimated(graph, profile, machine, {})


def check_profile(profile: str) -> None:
    given, at, named = profile.partition("@")
    if given not in PROFILES:
        raise UsageError(unknown("cost profile", given, PROFILES))
    if at and given not in _ESTIMATES:
        raise UsageError(f"cost profile {given!r} estimates for no machine; choose one of {', '.join(_ESTIMATES)}")
    if at:
        machine_named(named)


def read_costs(name: str, graph: Graph) -> Prices:
    """Price a graph by a profile or a costs file."""
    if name != "measured" and name.partition("@")[0] in PROFILES:
        return price(graph, name)
    if "." not in name and not Path(name).exists():
        raise UsageError(f"{unknown('cost profile', name, PROFILES)}, or give a costs file")
    return price(graph, "measured", costs_path=name)


def _estimated(graph: Graph, profile: str, machine: Machine, known: dict[str, Prices]) -> Prices:
    """Price callees first: an op takes at least one run of them, a conditional of the longest."""
    for name, subgraph in graph.subgraphs.items():
        if name not in known:
            known[name] = _estimated(subgraph, profile, machine, known)
    seconds = _ESTIMATES[profile.partition("@")[0]](graph, machine).copy()
    for op, names in enumerate(graph.callees):
        if names:
            inside = [float(known[name].seconds.sum()) for name in names]
            inner = max(inside) if graph.op_kinds[op] == "conditional" else sum(inside)
            seconds[op] = max(seconds[op], inner)
    seconds[graph.off_device] = 0.0  # the timeline prices them by the speed of the link or of the host's memory
    return Prices(profile=profile, seconds=seconds, callees=known)
