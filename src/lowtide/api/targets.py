"""Devices as users give them: a name, a JSON file, the size of a GPU's memory, or `mps`."""

from dataclasses import dataclass

from msgspec import structs

from lowtide.core.errors import UsageError
from lowtide.core.units import format_bytes, given_bytes, is_meant_as_size
from lowtide.engine.costs import Device, device_key, device_named, devices, is_device, unknown_device

_KERNELS = "a100-80"
"""Its kernels and speed are used for a GPU given by size."""
MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device for which a training step is planned."""

    title: str
    usable_bytes: int
    device: Device | None
    costs: str


def target_of(given: str | int) -> Target:
    """Return the device that a user named; raises UsageError for an unknown name or a size without unit."""
    name = str(given).strip()
    if name.lower().partition(":")[0] == MPS:
        return _mac(name)
    if isinstance(given, str) and is_device(name):
        device, key = device_named(name), device_key(name)
        title = f"{key} ({device.name}, {format_bytes(device.usable_bytes)} usable)"
        costs = f"eager@{key}" if key in devices() else "eager"
        return Target(title=title, usable_bytes=device.usable_bytes, device=device, costs=costs)
    if not isinstance(given, int | float) and not is_meant_as_size(name):
        raise UsageError(f"{unknown_device(name, MPS)}, or give its usable memory, like 24GiB")
    size = given_bytes(given)
    return Target(
        title=f"a GPU with {format_bytes(size)} usable (kernels and speed of {_KERNELS})",
        usable_bytes=size,
        device=structs.replace(devices()[_KERNELS], memory_bytes=max(size, 1)),
        costs=f"eager@{_KERNELS}",
    )


def _mac(name: str) -> Target:
    _, colon, size = name.partition(":")
    memory = given_bytes(size) if colon else _memory_of_this_mac()
    if memory is None:
        raise UsageError("the memory of mps is that of the Mac, and this is none; give it, like mps:24GiB")
    return Target(title=f"mps with {format_bytes(memory)} usable", usable_bytes=memory, device=None, costs="eager")


def _memory_of_this_mac() -> int | None:
    try:
        import torch
    except ImportError:
        return None
    return torch.mps.recommended_max_memory() if torch.backends.mps.is_available() else None
