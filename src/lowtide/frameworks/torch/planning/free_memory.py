"""The budget "fit": the memory that a device can still give to a program."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.resident import status_bytes
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.internals.tensors import bytes_held_by

FIT = "fit"
_FOR_THE_ALLOCATOR = 0.05
"""The allocator rounds sizes and fragments."""
_STEPS = 128
"""Free memory is rounded down to such parts, so that equal runs get equal plans."""
_CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def is_fit(budget: GivenBudget) -> bool:
    return isinstance(budget, str) and budget.strip().lower() == FIT


def fit_budget(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of these tensors plus 95 % of free memory. Raises UnsupportedError if that is unknown."""
    given = list(tensors)
    device = next((each.device for each in given if each.device.type != "cpu"), torch.device("cpu"))
    free, total = _free_and_total(device)
    step = max(total // _STEPS, 1)
    usable = int(free * (1 - _FOR_THE_ALLOCATOR)) // step * step
    return usable + bytes_held_by(each for each in given if each.device == device)


def _free_and_total(device: torch.device) -> tuple[int, int]:
    if device.type == "cuda" and torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + unused, total
    if device.type != "cpu":
        raise UnsupportedError(f"the free memory of device '{device}' is unknown; give a budget in bytes, such as 8GiB")
    known = [*_of_the_machine(), *_of_the_control_group(), *_of_the_process()]
    if not known:
        raise UnsupportedError("this system does not report its free memory; give a budget in bytes, such as 8GiB")
    return max(min(free for free, _ in known), 0), min(total for _, total in known)


def _of_the_machine() -> Sequence[tuple[int, int]]:
    with suppress(OSError, KeyError, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return [(sizes["MemAvailable"], sizes["MemTotal"])]
    return []


def _of_the_control_group() -> Sequence[tuple[int, int]]:
    for limit, usage in _CONTROL_GROUPS:
        with suppress(OSError, ValueError):
            most, used = (int(Path(file).read_text(encoding="ascii")) for file in (limit, usage))
            return [(most - used, most)]
    return []


def _of_the_process() -> Sequence[tuple[int, int]]:
    used = status_bytes("VmData")
    if used is None:
        return []
    import resource  # absent on Windows, which reports no such figure

    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return [] if most == resource.RLIM_INFINITY else [(most - used, most)]


def tensors_of(*owners: Any) -> list[torch.Tensor]:
    """Return tensors, or this rank's parts, of modules, optimizers and containers."""
    found: list[torch.Tensor] = []
    for owner in owners:
        if isinstance(owner, torch.nn.Module):
            found += map(local_part, (*owner.parameters(), *owner.buffers()))
        elif isinstance(owner, torch.optim.Optimizer):
            found += [local_part(each) for state in owner.state.values() for each in tensors_in(state)]
        else:
            found += tensors_in(owner)
    return found
