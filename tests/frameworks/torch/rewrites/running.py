"""Run a program, and compare outputs, inputs and layouts."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from lowtide.frameworks.torch.internals.tensors import storage_key
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK

Form = tuple[torch.dtype, torch.Size, tuple[int, ...]]


@dataclass
class Layout:
    """Dtypes, shapes and strides of the tensors of each node, and the nodes that share a storage."""

    forms: dict[str, list[Form]] = field(default_factory=dict[str, list[Form]])
    storages: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """For each node, the first nodes that share the storages of its tensors."""
    _first: dict[int, str] = field(default_factory=dict[int, str], repr=False, compare=False)
    _held: list[Any] = field(default_factory=list[Any], repr=False, compare=False)

    def add(self, name: str, value: Any) -> None:
        """Add the value of a node."""
        tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        self._held.append(tensors)
        self.forms[name] = [(tensor.dtype, tensor.shape, tensor.stride()) for tensor in tensors]
        self.storages[name] = [self._first.setdefault(storage_key(tensor), name) for tensor in tensors]


@dataclass(frozen=True)
class Outcome:
    """The outputs and overwritten inputs of a run."""

    outputs: list[Any]
    inputs: dict[str, torch.Tensor]
    layout: Layout


def run(module: GraphModule, given: dict[str, torch.Tensor]) -> Outcome:
    """Run a program on copies of its inputs, viewed with the dtypes and shapes of its placeholders."""
    inputs = {name: tensor.clone() for name, tensor in given.items()}
    layout = Layout()

    class Run(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.op != "output":
                layout.add(n.name, value)
            return value

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is TURN_BACK:
                return [tensor for name, tensor in inputs.items() if "tangents" in name]
            return super().call_function(target, args, kwargs)

    taken = module.graph.find_nodes(op="placeholder")
    torch.manual_seed(1)
    forms = ((node.meta["val"].dtype, node.meta["val"].shape) for node in taken)
    outputs = Run(module).run(
        *(inputs[str(node.target)].view(kind).view(shape) for node, (kind, shape) in zip(taken, forms, strict=True))
    )
    return Outcome(pytree.tree_leaves(outputs), inputs, layout)


def planned_layout(module: GraphModule) -> Layout:
    """Return the layout of the fake values of a program."""
    layout = Layout()
    for node in module.graph.nodes:
        if node.op != "output":
            layout.add(node.name, node.meta.get("val"))
    return layout
