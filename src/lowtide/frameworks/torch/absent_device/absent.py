"""Turn this process into one with an absent CUDA device."""

from lowtide.engine.costs import Device
from lowtide.frameworks.torch.absent_device.library import device_library
from lowtide.frameworks.torch.internals.absent_cuda import become_cuda_device
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode

_BITS_PER_BYTE = 8
_BUS_BITS = 4096


def pretend(device: Device) -> FakeMode:
    """Let PyTorch see the device, and return a mode for fake tensors on it. This cannot be undone."""
    properties = {
        "name": device.name,
        "total_memory": device.memory_bytes,
        "multi_processor_count": device.multiprocessors,
        "max_threads_per_multi_processor": device.threads_per_multiprocessor,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": device.registers_per_multiprocessor,
        "warp_size": 32,
        "shared_memory_per_block": device.shared_bytes_per_block,
        "shared_memory_per_block_optin": device.shared_bytes_per_block_optin,
        "shared_memory_per_multiprocessor": device.shared_bytes_per_multiprocessor,
        "L2_cache_size": device.l2_bytes,
        "clock_rate": device.clock_khz,
        "memory_bus_width": _BUS_BITS,
        "memory_clock_rate": int(device.memory_bytes_per_second * _BITS_PER_BYTE / _BUS_BITS / 2 / 1000),
        "gcnArchName": "",
        "is_integrated": 0,
        "uuid": "absent",
        "pci_bus_id": 0,
    }
    become_cuda_device(
        device_library(),
        device.compute_capability,
        properties,
        device.memory_bytes_per_second,
        lambda dtype: device.speed_of(str(dtype).removeprefix("torch.")),
    )
    return FakeMode(allow_non_fake_inputs=True)  # without symbols: values of tensors are errors
