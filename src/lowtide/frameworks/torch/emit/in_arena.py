"""Place CPU tensors in one arena, so that resident memory follows the plan."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lowtide.core.errors import UsageError, named_type
from lowtide.frameworks.arena.allocator import Arena
from lowtide.frameworks.arena.runs import Key, PlannedRuns, RunsInArena
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import replace_cpu_allocator


class InArena(RunsInArena):
    """A function with its CPU tensors at planned addresses in one arena.

    The first call per input shape is recorded, and its blocks, scratch included, are packed. Later calls that allocate
    differently continue with ordinary allocation, counted in `use`. Results and new state are never in the arena.
    Values are bit-equal.
    """

    def __init__(self, function: Callable[..., Any], arena: Arena | None = None) -> None:
        """Raise UnsupportedError if the CPU allocator cannot be replaced, UsageError if `function` is not callable."""
        if not callable(function):
            raise UsageError(f"{named_type(function)} cannot run in an arena; give a function or a planned step")
        self.function = function
        allocator = replace_cpu_allocator()
        self._runs = PlannedRuns(Arena(allocator) if arena is None else arena)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        key = (torch.get_num_threads(), str(structure), *map(_form_of, leaves))
        return self._runs.within(key, partial(self.function, *args, **kwargs))


def in_arena(function: Callable[..., Any], arena: Arena | None = None) -> InArena:
    """Return a function (planned step, applied plan, any callable) that places its CPU tensors in one arena.

    A heap has holes, so resident memory exceeds live bytes; in an arena both are equal. Functions that never run at the
    same time can share an `arena`. From the first use on, lowtide's allocator serves all CPU tensors of the process,
    outside of such calls like PyTorch's. Raises UnsupportedError if this PyTorch's CPU allocator cannot be replaced.

    >>> import torch, lowtide.torch
    >>> layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    >>> batch = torch.randn(1024, 64)
    >>> placed = lowtide.torch.in_arena(layers)
    >>> with torch.no_grad():
    ...     equal = [torch.equal(placed(batch), layers(batch)) for _ in range(3)]
    >>> equal, placed.use.recorded, placed.use.served
    ([True, True, True], 1, 2)
    """
    return InArena(function, arena)


def _form_of(leaf: Any) -> Key:
    if isinstance(leaf, torch.Tensor):
        return (str(leaf.dtype), *leaf.shape)
    return (repr(leaf),) if isinstance(leaf, bool | int | float | str | None) else (type(leaf).__name__,)
