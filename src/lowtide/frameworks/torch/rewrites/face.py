"""What others see of a program: its inputs, which of them it overwrites, its outputs and in which inputs they lie."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import outputs_of, storages_of, value_of
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.rewrite import Preserves


@dataclass(frozen=True, slots=True)
class Face:
    """A program as its callers see it; inputs by name, outputs by position."""

    inputs: dict[str, tuple[Any, ...]]
    """The form of every input."""
    overwritten: frozenset[str]
    outputs: list[tuple[tuple[Any, ...], frozenset[str]]]
    """The form of every output, and the inputs in whose storage it lies."""

    @classmethod
    def of(cls, module: GraphModule) -> "Face":
        """Return the face of a program whose nodes carry their values."""
        holders: dict[int, set[str]] = {}
        inputs = module.graph.find_nodes(op="placeholder")
        for node in inputs:
            for key in storages_of(node):
                holders.setdefault(key, set()).add(str(node.target))

        def names_of(*nodes: Node) -> frozenset[str]:
            return frozenset(name for key in storages_of(*nodes) for name in holders.get(key, ()))

        written = (node for call in module.graph.nodes for node in nodes_in(mutated_arguments(call)))
        outputs = [output for output in outputs_of(module) if isinstance(output, Node)]
        return cls(
            {str(node.target): _form_of(node) for node in inputs},
            names_of(*dict.fromkeys(written)),
            [(_form_of(node), names_of(node)) for node in outputs],
        )

    def differs_from(self, before: "Face", preserves: Preserves) -> str | None:
        """Say how a rewritten program breaks what it should preserve of the one before it, None where it does not."""
        if preserves.inputs and self.inputs != before.inputs:
            return f"its inputs were {before.inputs} and are {self.inputs}"
        gone = before.inputs.keys() - self.inputs.keys()
        if not before.overwritten <= self.overwritten:
            return f"it no longer overwrites {sorted(before.overwritten - self.overwritten)}"
        if len(self.outputs) != len(before.outputs):
            return f"it had {len(before.outputs)} outputs and has {len(self.outputs)}"
        for place, (was, now) in enumerate(zip(before.outputs, self.outputs, strict=True)):
            if preserves.outputs and (was[0], was[1] - gone) != now:
                return f"output {place} was {was} and is {now}"
        return None


def _form_of(node: Node) -> tuple[Any, ...]:
    """Return the forms of the tensors a node stands for; sizes that are symbols count as equal, to ask them nothing."""
    leaves = pytree.tree_leaves(value_of(node))
    return tuple(_form_of_tensor(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _form_of_tensor(tensor: torch.Tensor) -> tuple[str, str, tuple[int | None, ...]]:
    sizes = tuple(None if isinstance(size, torch.SymInt) else size for size in tensor.shape)
    return str(tensor.dtype), str(tensor.device), sizes
