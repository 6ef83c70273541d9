"""Machines by name: peak figures as their makers publish them, which real programs do not reach."""

from collections.abc import Mapping

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine


def _accelerator(teraflops: float, terabytes: float, link_gigabytes: float, network_gigabytes: float) -> Machine:
    """Return one of eight in a node: dense bfloat16 products, memory, links in the node, network."""
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
"""Accelerators on boards of eight (SXM, OAM), a network adapter of 200 (a100) or 400 Gbit/s each; a laptop with eight
cores of 32 single-precision operations a cycle, and two channels of DDR5."""


def machine_named(name: str) -> Machine:
    """Return a machine by its name; raises UsageError for an unknown one."""
    if name not in MACHINES:
        raise UsageError(unknown("machine", name, MACHINES))
    return MACHINES[name]
