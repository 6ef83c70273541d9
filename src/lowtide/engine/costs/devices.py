"""Devices by name."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from lowtide.core.documents import read_document
from lowtide.core.errors import UsageError, unknown
from lowtide.engine.costs.machine import Machine

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Speed = Annotated[float, msgspec.Meta(gt=0)]
_TABLE = Path(__file__).with_name("devices.json")
_HALF_TYPES = ("bfloat16", "float16")
_CONTEXT_BYTES = 640 << 20
"""Memory that CUDA takes before the first tensor. Reported: 256 to 616 MiB (invoke-ai/InvokeAI#9413,
LMCache/LMCache#4019)."""


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accelerator: published peak speeds, and limits for compilers of kernels."""

    name: str
    """Name that the driver reports."""
    memory_bytes: _Count
    """Total memory that CUDA reports."""
    memory_bytes_per_second: _Speed
    flops_per_second: Annotated[dict[str, _Speed], msgspec.Meta(min_length=1)]
    """FLOP/s of dense matrix products, by dtype: bfloat16, float16, tfloat32, float32, float64, float8, int8."""
    launch_seconds: _Speed
    host_bytes_per_second: _Speed
    """Bandwidth to the host, in each direction."""
    link_bytes_per_second: _Speed
    network_bytes_per_second: _Speed
    devices_per_node: _Count = 1
    compute_capability: tuple[int, int]
    multiprocessors: _Count
    threads_per_multiprocessor: _Count
    registers_per_multiprocessor: _Count = 65536
    shared_bytes_per_block: _Count = 49152
    shared_bytes_per_block_optin: _Count
    shared_bytes_per_multiprocessor: _Count
    l2_bytes: _Count
    clock_khz: _Count
    host_memory_bytes_per_second: _Speed | None = None
    """Peak bandwidth of the host's memory, divided by the devices of a node.

    Hosts of 8 devices: DGX A100 (2 EPYC 7742, 204.8 GB/s each), DGX H100, H200 and servers of the L40S (2 Xeon 8480C,
    307.2 GB/s), DGX B200 (2 Xeon 8570, 358.4 GB/s). Of one: AWS g4dn with the T4 (Xeon 8259CL, 140.8 GB/s), Core
    i9-13900K for the RTX 4090 (89.6 GB/s).
    """

    @property
    def usable_bytes(self) -> int:
        """The total memory without the CUDA context."""
        return max(0, self.memory_bytes - _CONTEXT_BYTES)

    @property
    def machine(self) -> Machine:
        return Machine(
            bytes_per_second=self.memory_bytes_per_second,
            flops_per_second=self.speed_of(""),
            start_seconds=self.launch_seconds,
            link_bytes_per_second=self.link_bytes_per_second,
            network_bytes_per_second=self.network_bytes_per_second,
            devices_per_node=self.devices_per_node,
        )

    def seconds(self, traffic_bytes: float, flops: float, dtype: str = "") -> float:
        return self.launch_seconds + max(traffic_bytes / self.memory_bytes_per_second, flops / self.speed_of(dtype))

    def speed_of(self, dtype: str) -> float:
        """Return the FLOP/s of products of a dtype, by default half precision."""
        speeds = self.flops_per_second
        names = (dtype, *_HALF_TYPES)
        return next((speeds[each] for each in names if each in speeds), max(speeds.values()))


@cache
def devices() -> Mapping[str, Device]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, Device])


_ALSO_KNOWN_AS = {"a100": "a100-80"}


def device_key(name: str) -> str:
    """Return a name's key in the table: "a100-80" for "A100", "rtx4090" for "RTX 4090"."""
    key = "".join(name.split()).lower()
    return _ALSO_KNOWN_AS.get(key, key)


def is_device(name: str) -> bool:
    return device_key(name) in devices() or name.endswith(".json")


def device_named(name: str) -> Device:
    """Return a known device, or the one in a JSON file with the fields of `Device`.

    Raises UsageError for an unknown name, MalformedInputError for other fields, InputError for an unreadable file.
    """
    if device_key(name) in devices():
        return devices()[device_key(name)]
    if name.endswith(".json"):
        return read_document(Path(name), Device, "not a description of a device")
    raise UsageError(f"{unknown_device(name)}, or give a JSON file with its properties")


def unknown_device(name: str, *others: str) -> str:
    return unknown("device", name, (*_ALSO_KNOWN_AS, *devices(), *others))
