"""A CUDA device that is not there: its C++ parts, and answers about it."""
# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false, reportPrivateUsage=false
# pyright: reportUnknownMemberType=false

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.fx.experimental import proxy_tensor

SOURCE = Path(__file__).with_suffix(".cpp")


_became: list[tuple[int, int]] = []


def is_cuda_absent() -> bool:
    return bool(_became)


def include_folders() -> list[Path]:
    root = Path(torch.__file__).parent / "include"
    return [root, root / "torch" / "csrc" / "api" / "include"]


def library_folder() -> Path:
    return Path(torch.__file__).parent / "lib"


def become_cuda_device(
    library: Path,
    capability: tuple[int, int],
    properties: Mapping[str, Any],
    bytes_per_second: float,
    flops_per_second: Callable[[torch.dtype], float],
) -> None:
    """Let this process see one CUDA device, for fake tensors only.

    This cannot be undone, and PyTorch caches many answers, so call it before compiling.
    """
    major, minor = capability
    _became.append(capability)
    ctypes.CDLL(str(library)).lowtide_become_cuda_device(10 * major + minor)
    device = SimpleNamespace(**properties, major=major, minor=minor)
    fake_tensor.init_gpu_context = _always(None)  # a build with CUDA would look for a driver
    FakeTensorMode.avoid_device_init = True  # values of small tensors are not copied to the device
    proxy_tensor.CONSTANT_NUMEL_LIMIT = -1  # nor are those of constants
    torch.utils.weakref = SimpleNamespace(getweakrefs=_always([]))  # lets `Module.to` move fake parameters
    _answer_for_torch_cuda(device, capability)
    _answer_for_inductor(device, capability)
    _choose_patterns(bytes_per_second, flops_per_second)


def exchange_contents(one: torch.Tensor, other: torch.Tensor) -> None:
    """Exchange two tensors' contents and classes: references to one see the other."""
    torch.utils.swap_tensors(one, other)


def _answer_for_torch_cuda(device: SimpleNamespace, capability: tuple[int, int]) -> None:
    memory: int = device.total_memory
    answers = {
        "_exchange_device": 0,
        "_lazy_init": None,
        "_maybe_exchange_device": 0,
        "current_device": 0,
        "device_count": 1,
        "empty_cache": None,
        "get_device_capability": capability,
        "get_device_name": device.name,
        "get_device_properties": device,
        "init": None,
        "is_available": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "is_initialized": True,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (memory, memory),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "reset_peak_memory_stats": None,
        "set_device": None,
        "set_rng_state": None,
        "synchronize": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _always(answer))
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all"):
        setattr(torch.cuda, name, _always(None))
    torch.cuda.get_rng_state = _random_state


def _answer_for_inductor(device: SimpleNamespace, capability: tuple[int, int]) -> None:
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config, scheduler

    answers = {
        "current_device": 0,
        "device_count": 1,
        "exchange_device": 0,
        "get_compute_capability": 10 * capability[0] + capability[1],
        "get_device_properties": device,
        "is_available": True,
        "is_bf16_supported": True,
        "is_triton_capable": True,
        "maybe_exchange_device": 0,
        "raise_if_triton_unavailable": None,
        "set_device": None,
        "synchronize": None,
    }
    for name, answer in answers.items():
        setattr(CudaInterface, name, staticmethod(_always(answer)))
    CudaInterface.Worker.get_device_properties = staticmethod(_always(device))
    CudaInterface.Worker.current_device = staticmethod(_always(0))
    config.joint_graph_constant_folding = False  # it runs ops on the device
    scheduler.has_triton = _always(True)  # Triton's kernels are scheduled, never compiled


def _choose_patterns(bytes_per_second: float, flops_per_second: Callable[[torch.dtype], float]) -> None:
    """Trace Inductor's patterns on fake tensors, and pad unaligned products that are bound by arithmetic.

    On a device, Inductor measures whether padding is faster.
    """
    from torch._inductor import utils
    from torch._inductor.fx_passes import joint_graph, pad_mm

    register = joint_graph.lazy_init

    def register_on_fakes(*given: Any) -> None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            register(*given)

    def pads(_match: Any, left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> bool:
        return pad_mm.is_mm_compute_bound(left.shape[-2], left.shape[-1], right.shape[-1], left.dtype)

    def teraflops(dtype: torch.dtype) -> float:
        return flops_per_second(dtype) / 1e12

    joint_graph.lazy_init = register_on_fakes
    utils.get_gpu_dram_gbps = _always(bytes_per_second / 1e9)
    utils.get_device_tflops = teraflops
    pad_mm.has_triton = _always(True)
    pad_mm._should_pad = pads


def _random_state(*_: Any, **__: Any) -> torch.Tensor:
    return torch.zeros(16, dtype=torch.uint8)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer
