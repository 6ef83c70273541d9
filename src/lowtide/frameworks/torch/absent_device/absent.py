"""Turn this process into one with an absent CUDA device. C++ parts are compiled once per release of PyTorch."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Device
from lowtide.engine.planning.plan_cache import cache_folder
from lowtide.frameworks.torch.internals.absent_cuda import (
    SOURCE,
    become_cuda_device,
    include_folders,
    library_folder,
)
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode

_BITS_PER_BYTE = 8
_BUS_BITS = 4096
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O0", "-shared", "-fPIC")


def pretend(device: Device) -> FakeMode:
    """Let PyTorch see the device for good, and return a mode for fake tensors on it."""
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
        _device_library(),
        device.compute_capability,
        properties,
        device.memory_bytes_per_second,
        lambda dtype: device.speed_of(str(dtype).removeprefix("torch.")),
    )
    return FakeMode(allow_non_fake_inputs=True)  # without symbols: values of tensors are errors


def _device_library() -> Path:
    """Return the library, compiled once per release of PyTorch. Raises UnsupportedError without a compiler."""
    key = hashlib.sha256(f"{torch.__version__} {sys.platform}".encode() + SOURCE.read_bytes()).hexdigest()[:20]
    folder = _folder()
    library = folder / f"{SOURCE.stem}-{key}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as made_in:
            made = Path(made_in) / library.name
            _compile(made)
            made.replace(library)
    return library


def _folder() -> Path:
    cache = cache_folder()
    if cache is not None:
        try:
            (cache / "compiled").mkdir(parents=True, exist_ok=True)
            if os.access(cache / "compiled", os.W_OK):
                return cache / "compiled"
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="lowtide-"))


def _compile(library: Path) -> None:
    named = os.environ.get("CXX")
    compiler = shutil.which(named) if named else next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        wanted = named or ", ".join(_COMPILERS)
        raise UnsupportedError(
            f"planning for an absent device needs a C++ compiler once, and there is none ({wanted}); install g++ or "
            "clang++, or name one in CXX"
        )
    includes = [f"-I{folder}" for folder in include_folders()]
    links = [f"-L{library_folder()}", "-lc10", "-ltorch_cpu"]
    command = [compiler, *_FLAGS, *includes, str(SOURCE), "-o", str(library), *links]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit code {done.returncode}"]
        raise UnsupportedError(
            f"{compiler} cannot compile against PyTorch {torch.__version__}: {errors[0].strip()}; try another compiler "
            "(CXX)"
        )
