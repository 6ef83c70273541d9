"""Machines for cost estimates, by name."""

from collections.abc import Mapping

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.costs.devices import devices
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine

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
    """Return a machine by name; raises UsageError for an unknown name."""
    if name not in MACHINES:
        raise UsageError(unknown("machine", name, MACHINES))
    return MACHINES[name]
