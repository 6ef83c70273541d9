"""`torch.distributed`: process groups, the store that ranks share, and the local parts of DTensors."""
# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false, reportPrivateUsage=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed
from torch._guards import CompileContext


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A rank, the number of ranks, and the store that they share."""

    rank: int
    size: int
    store: Any

    def publish(self, key: str, text: str) -> None:
        """Send a text to the other ranks."""
        self.store.set(f"{key}/{self.rank}", text)

    def collect(self, key: str, ranks: Sequence[int], patience: timedelta) -> dict[int, str | None]:
        """Return the texts that other ranks published under a key; None for ranks that time out."""
        end = time.monotonic() + patience.total_seconds()
        found: dict[int, str | None] = {}
        for rank in ranks:
            left = timedelta(seconds=max(end - time.monotonic(), 0.01))
            found[rank] = self._wait(f"{key}/{rank}", left)
        return found

    def _wait(self, key: str, patience: timedelta) -> str | None:
        try:
            self.store.wait([key], patience)
        except RuntimeError:  # each kind of store raises its own error on a timeout
            return None
        return self.store.get(key).decode()


def rendezvous() -> Rendezvous | None:
    """Return the rendezvous of this process, or None if it runs alone.

    A "fake" process group also gives None: its other ranks do not exist and its store drops every text.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    size = torch.distributed.get_world_size()
    if size == 1 or torch.distributed.get_backend() == "fake":
        return None
    store = torch.distributed.PrefixStore("lowtide", torch.distributed.distributed_c10d._get_default_store())
    return Rendezvous(torch.distributed.get_rank(), size, store)


def ranks_of(groups: Iterable[str]) -> list[int]:
    """Return the sorted, distinct ranks of process groups given by name."""
    return sorted({rank for name in groups for rank in torch.distributed.get_process_group_ranks(_resolved(name))})


def size_and_span(group: Any) -> tuple[int, int] | None:
    """Return the number of ranks of a process group and the length of the range that spans them.

    `group` is a name or the group itself. Returns None if this process does not know it.
    """
    try:
        ranks = torch.distributed.get_process_group_ranks(_resolved(group))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None
    return len(ranks), max(ranks) - min(ranks) + 1


def backend_of(group: Any) -> str | None:
    """Return the communication backend of a process group, given as in `size_and_span`; None if unknown."""
    try:
        return str(torch.distributed.get_backend(_resolved(group)))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None


def _resolved(group: Any) -> Any:
    resolve: Any = torch.distributed.distributed_c10d._resolve_process_group
    return resolve(group) if isinstance(group, str) else group


def compilation() -> str:
    """Return TorchDynamo's id of the current compilation, equal on all ranks: "2/1" recompiles frame 2."""
    return str(CompileContext.current_compile_id())


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a DTensor, in the same storage; any other tensor unchanged."""
    return tensor._local_tensor if is_distributed(tensor) else tensor


def is_distributed(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a DTensor, without importing `torch.distributed.tensor`."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def distributed_as(part: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Wrap a local part as a DTensor laid out like `other`; return the part if `other` is no DTensor.

    Autograd passes through: the part receives the gradient of its elements.
    """
    if not is_distributed(other):
        return part
    full: Any = other
    return type(full).from_local(
        part, full.device_mesh, full.placements, run_check=False, shape=full.shape, stride=full.stride()
    )
