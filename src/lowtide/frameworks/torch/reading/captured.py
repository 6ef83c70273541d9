"""What capturing a PyTorch program gives: one aten graph, and how the live tensors get in and out of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Lifetime


class CaptureMismatchError(UsageError):
    """A call differs from the captured one; capturing again makes it work."""


class Binding(ABC):
    """How the user's live objects feed a captured graph, and how its flat outputs become the user's result."""

    @abstractmethod
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the live tensor or scalar of every placeholder, in order.

        Raises CaptureMismatchError where the call does not fit what was captured; nothing has run then.
        """

    @abstractmethod
    def finish(self, outputs: list[Any], sources: list[Any]) -> Any:
        """Turn the graph's flat outputs into the user's result, storing gradients where the original would.

        `sources` are the tensors that `bind` returned.
        """

    @abstractmethod
    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the user's own program, doing the same work as the captured graph."""

    @abstractmethod
    def persistent(self) -> list[torch.Tensor]:
        """Return the live tensors that outlast a call: parameters, module buffers, optimizer state."""

    def gradients(self) -> list[torch.Tensor | None]:
        """Return the gradients that a call leaves in `.grad`, part of its result."""
        return []

    def materialize(self) -> None:  # noqa: B027 (most programs have no state that is made lazily)
        """Make state that the original would only make during its first call."""

    def dematerialize(self) -> None:  # noqa: B027
        """Take back what `materialize` made."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Captured:
    """A PyTorch program as one aten-level graph, made without allocating or computing anything."""

    name: str
    graph_module: GraphModule
    inputs: tuple[tuple[str, Lifetime], ...]
    """Name and lifetime class (`PERSISTENT`, `INPUT`, or `DONATED`) of every placeholder."""
    binding: Binding
    with_backward: bool
    """Whether a backward pass is part of the graph; some kernels compute more for one."""
    example_args: tuple[Any, ...]
    example_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unmodeled: tuple[str, ...] = ()
    """What capturing had to leave out, one sentence each."""

    def persistent(self) -> list[torch.Tensor]:
        """Return the live tensors that outlast a call, constants of the graph included."""
        names = dict.fromkeys(str(node.target) for node in self.graph_module.graph.find_nodes(op="get_attr"))
        held = [attribute(self.graph_module, name) for name in names]
        return [*self.binding.persistent(), *(value for value in held if isinstance(value, torch.Tensor))]

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        """Run the user's own program as it is written, with the captured graph's amount of work."""
        return self.binding.run_original(args, kwargs)


def attribute(module: GraphModule, path: str) -> Any:
    """Return what a `get_attr` node refers to."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
