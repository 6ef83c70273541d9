"""Captured PyTorch programs: an aten graph, and the binding of live tensors to it."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.operators import op_name

_ONLY_IN_ATTENTION = "_safe_softmax"


class CaptureMismatchError(UsageError):
    """A call differs from the captured one; capturing again makes it work."""


class Binding(ABC):
    """Binds a user's objects to graph inputs and outputs."""

    @abstractmethod
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensor or scalar of every placeholder; raises CaptureMismatchError before anything runs."""

    @abstractmethod
    def finish(self, outputs: list[Any], sources: list[Any]) -> Any:
        """Build the user's result, and store gradients, from flat outputs and the tensors of `bind`."""

    @abstractmethod
    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the user's program."""

    @abstractmethod
    def persistent(self) -> list[torch.Tensor]:
        """Return parameters, module buffers and optimizer state."""

    def gradients(self) -> list[torch.Tensor | None]:
        return []

    def movable(self) -> list[torch.Tensor]:
        """Return the tensors of the first placeholders, if they may move to the host."""
        return []

    def with_on_host(self, homes: Mapping[int, torch.device], state: Collection[int] = ()) -> "Binding":
        """Return a binding with tensors, by position, and optimizer state on the host of their homes."""
        return self

    def one_thread(self) -> AbstractContextManager[None]:
        """Return a context that raises UsageError if another thread runs a program with state in Python."""
        return nullcontext()

    def note_failure(self, error: BaseException, *, counts_changes: bool) -> None:  # noqa: B027
        """Note in an exception which state the call leaves. `counts_changes`: tensors count in-place changes."""

    def materialize(self) -> None:  # noqa: B027 (most programs have no lazy state)
        """Create the state that a first call creates."""

    def dematerialize(self) -> None:  # noqa: B027
        """Undo `materialize`."""

    def rewind(self) -> None:  # noqa: B027
        """Let the next call be the captured one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Captured:
    """A program as one aten graph, captured without computing anything."""

    name: str
    graph_module: GraphModule
    inputs: tuple[tuple[str, Lifetime], ...]
    """Name and lifetime (`PERSISTENT`, `INPUT`, or `DONATED`) of every placeholder."""
    binding: Binding
    with_backward: bool
    """Some kernels compute more for a backward pass."""
    example_args: tuple[Any, ...]
    example_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unmodeled: tuple[str, ...] = ()
    """Parts that capture left out, one sentence each."""
    on_host: tuple[int, ...] = ()
    """Positions of placeholders on the host."""

    def persistent(self) -> list[torch.Tensor]:
        """Return the live tensors that outlast a call, with graph constants."""
        names = dict.fromkeys(str(node.target) for node in self.graph_module.graph.find_nodes(op="get_attr"))
        constants = [attribute(self.graph_module, name) for name in names]
        return [*self.binding.persistent(), *(value for value in constants if isinstance(value, torch.Tensor))]

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        """Run the user's own program."""
        return self.binding.run_original(args, kwargs)


def attribute(module: GraphModule, path: str) -> Any:
    return attrgetter(path)(module)


def warn_of_math_attention(module: GraphModule) -> None:
    """Warn of attention that became plain products, since the device "meta" has no fused kernels."""
    found = [
        node
        for node in module.graph.nodes
        if op_name(node.target) == _ONLY_IN_ATTENTION
        and any(tensor.device.type == "meta" for tensor in pytree.tensors_in(hinted_value_of(node)))
    ]
    if found:
        warnings.warn(
            f'lowtide: captured {len(found)} attentions on the device "meta" as products with scores of length x '
            f"length (first: {found[0].name}); call a fused kernel by name, such as "
            "torch.ops.aten._scaled_dot_product_flash_attention",
            stacklevel=2,
        )
