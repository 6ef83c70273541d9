"""The private corners of `torch.distributed` that agreement stands on: a new PyTorch is ported here."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed
from torch._guards import CompileContext


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A rank among others, and the store that they share."""

    rank: int
    size: int
    store: Any

    def publish(self, key: str, text: str) -> None:
        """Say something to the other ranks."""
        self.store.set(f"{key}/{self.rank}", text)

    def collect(self, key: str, ranks: Sequence[int], patience: timedelta) -> dict[int, str | None]:
        """Return what other ranks say under a key; None for those that say nothing for a while."""
        end = time.monotonic() + patience.total_seconds()
        found: dict[int, str | None] = {}
        for rank in ranks:
            left = timedelta(seconds=max(end - time.monotonic(), 0.01))
            found[rank] = self._wait(f"{key}/{rank}", left)
        return found

    def _wait(self, key: str, patience: timedelta) -> str | None:
        try:
            self.store.wait([key], patience)
        except RuntimeError:  # each kind of store has its own for "nobody set it in time"
            return None
        return self.store.get(key).decode()


def rendezvous() -> Rendezvous | None:
    """Return where this process stands among others; None where `torch.distributed` is not in use, or only played.

    A "fake" process group has ranks that do not exist, and a store that keeps nothing.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    size = torch.distributed.get_world_size()
    if size == 1 or torch.distributed.get_backend() == "fake":
        return None
    store = torch.distributed.PrefixStore("lowtide", torch.distributed.distributed_c10d._get_default_store())
    return Rendezvous(torch.distributed.get_rank(), size, store)


def ranks_of(groups: Iterable[str]) -> list[int]:
    """Return the ranks in process groups given by their names, each once, in order."""
    return sorted({rank for name in groups for rank in torch.distributed.get_process_group_ranks(_resolved(name))})


def size_and_span(group: Any) -> tuple[int, int] | None:
    """Return how many ranks a process group has, and among how many consecutive ones; None where it is not known here.

    `group` is its name, or the group itself.
    """
    try:
        ranks = torch.distributed.get_process_group_ranks(_resolved(group))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None
    return len(ranks), max(ranks) - min(ranks) + 1


def backend_of(group: Any) -> str | None:
    """Return what a process group, or the one of a name, communicates by; None where that is not known here."""
    try:
        return str(torch.distributed.get_backend(_resolved(group)))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None


def _resolved(group: Any) -> Any:
    resolve: Any = torch.distributed.distributed_c10d._resolve_process_group
    return resolve(group) if isinstance(group, str) else group


def compilation() -> str:
    """Return TorchDynamo's name of what is being compiled, which counts alike on all ranks: "2/1" is frame 2, again."""
    return str(CompileContext.current_compile_id())
