"""A captured PyTorch program: one aten graph, and the binding of live tensors to its inputs and outputs."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.operators import op_name

_ONLY_IN_ATTENTION = "_safe_softmax"
"""An op that PyTorch uses only in attention by plain products."""


class CaptureMismatchError(UsageError):
    """A call differs from the captured one; capturing again makes it work."""


class Binding(ABC):
    """The mapping from the user's live objects to graph inputs, and from flat outputs to the user's result."""

    @abstractmethod
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the live tensor or scalar of every placeholder, in order.

        Raises CaptureMismatchError, before anything runs, if the call does not match the capture.
        """

    @abstractmethod
    def finish(self, outputs: list[Any], sources: list[Any]) -> Any:
        """Build the user's result from flat outputs, and store gradients as the original program does.

        `sources` are the tensors that `bind` returned.
        """

    @abstractmethod
    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the user's own program, with the same work as the captured graph."""

    @abstractmethod
    def persistent(self) -> list[torch.Tensor]:
        """Return the live tensors that outlast a call: parameters, module buffers, optimizer state."""

    def gradients(self) -> list[torch.Tensor | None]:
        """Return the gradients that a call leaves in `.grad`, as part of its result."""
        return []

    def materialize(self) -> None:  # noqa: B027 (most programs have no lazy state)
        """Create the state that the original program creates during its first call."""

    def dematerialize(self) -> None:  # noqa: B027
        """Undo `materialize`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Captured:
    """A PyTorch program as one aten graph, captured without allocating or computing anything."""

    name: str
    graph_module: GraphModule
    inputs: tuple[tuple[str, Lifetime], ...]
    """Name and lifetime class (`PERSISTENT`, `INPUT`, or `DONATED`) of every placeholder."""
    binding: Binding
    with_backward: bool
    """Whether the graph contains a backward pass, for which some kernels compute more."""
    example_args: tuple[Any, ...]
    example_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unmodeled: tuple[str, ...] = ()
    """Parts of the program left out by capture, one sentence each."""

    def persistent(self) -> list[torch.Tensor]:
        """Return the live tensors that outlast a call, including constants of the graph."""
        names = dict.fromkeys(str(node.target) for node in self.graph_module.graph.find_nodes(op="get_attr"))
        constants = [attribute(self.graph_module, name) for name in names]
        return [*self.binding.persistent(), *(value for value in constants if isinstance(value, torch.Tensor))]

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        """Run the user's own program, with the same work as the captured graph."""
        return self.binding.run_original(args, kwargs)


def attribute(module: GraphModule, path: str) -> Any:
    """Return the object to which a `get_attr` node refers."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def warn_of_math_attention(module: GraphModule) -> None:
    """Warn if attention on the device "meta" became products with scores of length x length.

    The device "meta" has no fused kernels, while a real device would run one. Such a plan describes another program.
    """
    found = [
        node
        for node in module.graph.nodes
        if op_name(node.target) == _ONLY_IN_ATTENTION
        and any(
            isinstance(leaf, torch.Tensor) and leaf.device.type == "meta"
            for leaf in pytree.tree_leaves(hinted_value_of(node))
        )
    ]
    if found:
        warnings.warn(
            f'lowtide: captured {len(found)} attentions on the device "meta" as products with scores of length x '
            f"length (first: {found[0].name}); call a fused kernel by name, such as "
            "torch.ops.aten._scaled_dot_product_flash_attention",
            stacklevel=2,
        )
