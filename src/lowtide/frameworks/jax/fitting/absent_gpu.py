"""A GPU that is not there, for which XLA compiles functions from its properties."""

from typing import Any

from lowtide.engine.costs.devices import Device
from lowtide.frameworks.jax.internals import absent_gpu

_LANES = {(7, 5): 64, (8, 0): 64}
"""Float32 lanes of a multiprocessor, by compute capability; 128 of others."""


def device_to_compile_for(device: Device) -> Any:
    """Return JAX's device with these properties, on which nothing can run. Raises UnsupportedError without a plugin."""
    return absent_gpu(_target(device))


def _target(device: Device) -> str:
    """Return a device in the text format of XLA's GpuTargetConfigProto."""
    major, minor = device.compute_capability
    properties = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": device.shared_bytes_per_block,
        "shared_memory_per_core": device.shared_bytes_per_multiprocessor,
        "shared_memory_per_block_optin": device.shared_bytes_per_block_optin,
        "threads_per_core_limit": device.threads_per_multiprocessor,
        "core_count": device.multiprocessors,
        "fpus_per_core": _LANES.get(device.compute_capability, 128),
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": int(device.memory_bytes_per_second),
        "l2_cache_size": device.l2_bytes,
        "clock_rate_ghz": device.clock_khz / 1e6,
        "device_memory_size": device.memory_bytes,
        "registers_per_core_limit": device.registers_per_multiprocessor,
        "registers_per_block_limit": 65536,
    }
    lines = "\n".join(f"  {name}: {value}" for name, value in properties.items())
    return (
        f"gpu_device_info {{\n{lines}\n  cuda_compute_capability {{ major: {major} minor: {minor} }}\n}}\n"
        f'platform_name: "CUDA"\ndnn_version_info {{ major: 9 }}\ndevice_description_str: "{device.name}"\n'
    )
