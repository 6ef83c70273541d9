"""Functions whose CPU tensors lie in one arena, so that resident memory is what the plan says."""

from collections.abc import Callable
from typing import Any

import torch

from lowtide.core.errors import UsageError
from lowtide.frameworks.arena.allocator import Arena
from lowtide.frameworks.arena.runs import Key, PlannedRuns, RunsInArena
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import replace_cpu_allocator


class InArena(RunsInArena):
    """A function whose tensors on the CPU lie in one arena at planned addresses while it runs.

    The first call with inputs of given shapes is recorded and its blocks are packed; later calls find every block at
    its place, scratch memory of kernels included. A call that allocates otherwise goes on by ordinary allocation: `use`
    counts that, and nothing else changes. What outlives its call (results, state that is made in it) never lies in the
    arena. Values are the same bit for bit.
    """

    def __init__(self, function: Callable[..., Any], arena: Arena | None = None) -> None:
        """Take any callable, and an arena to share with functions that run at other times.

        Raises UnsupportedError for a PyTorch whose CPU allocator cannot be replaced, UsageError for what cannot be
        called.
        """
        if not callable(function):
            raise UsageError(f"a {type(function).__name__} cannot run in an arena; give a function or a planned step")
        self.function = function
        allocator = replace_cpu_allocator()
        self._runs = PlannedRuns(Arena(allocator) if arena is None else arena)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        key = (torch.get_num_threads(), str(structure), *map(_form_of, leaves))
        return self._runs.within(key, lambda: self.function(*args, **kwargs))


def in_arena(function: Callable[..., Any], arena: Arena | None = None) -> InArena:
    """Return a function that keeps its tensors on the CPU in one arena: a planned step, an applied plan, any callable.

    Live bytes are what a plan counts, and resident memory is what a machine runs out of. Between them stands the C
    library, whose heap has holes. In an arena both are the same: see `InArena`. Functions that never run at the same
    time can share an `arena`.

    From the first use on, all CPU tensors of the process are allocated by lowtide's allocator; outside of such calls it
    does what PyTorch's does. Raises UnsupportedError for a PyTorch whose CPU allocator cannot be replaced.

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
