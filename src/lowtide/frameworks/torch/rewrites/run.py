"""The runner of rewrites (`run_rewrites`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lowtide.core.collection import without_collection
from lowtide.core.errors import RewriteError
from lowtide.frameworks.torch.internals.fake_memo import FakeMemo
from lowtide.frameworks.torch.internals.nodes import first_fake, outputs_of, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import overload_of, returns_anything
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.effects import overwritten_nodes
from lowtide.frameworks.torch.rewrites.rewrite import HAD_NO_VALUE, MADE_BY, Preserves, Rewrite


@without_collection()
def run_rewrites(module: GraphModule, rewrites: Sequence[Rewrite[Any]]) -> GraphModule:
    """Return the program after all rewrites, in order; may change the given module.

    Raises RewriteError if nodes are out of order, or a rewrite breaks its declaration. O(nodes and edges) per rewrite.
    """
    for rewrite in rewrites:
        sites = rewrite.sites(module)
        if not sites:
            continue
        before, values = _Interface.of(module), _Values(module)
        module = rewrite.apply(module, sites)
        try:
            module.graph.lint()
        except RuntimeError as error:
            raise _error(rewrite, str(error)) from error
        values.derive(module, rewrite.name)
        broken = _Interface.of(module).difference_from(before, rewrite.preserves)
        if broken is not None:
            raise _error(rewrite, broken)
    module.recompile()
    return module


def _error(rewrite: Rewrite[Any], broken: str) -> RewriteError:
    return RewriteError(f"the rewrite '{rewrite.name}' broke the program: {broken}; this is a bug, please report it")


class _Values:
    def __init__(self, module: GraphModule) -> None:
        nodes = list(module.graph.nodes)
        self._alive = [value_of(node) for node in nodes]  # storages are compared by address
        for node in nodes:
            if "val" not in node.meta:
                node.meta[HAD_NO_VALUE] = True
        self._shared = {node.name: storages_of(node) & storages_of(*node.all_input_nodes) for node in nodes}
        self._fake = first_fake(self._alive)
        self._memo = FakeMemo()

    def derive(self, module: GraphModule, made_by: str) -> None:
        def operand(source: Node) -> Any:
            value = value_of(source)
            return attribute(module, str(source.target)) if value is None and source.op == "get_attr" else value

        for node in module.graph.nodes:
            is_new = not node.meta.pop(HAD_NO_VALUE, False) and "val" not in node.meta
            if node.op == "call_function" and is_new:
                node.meta[MADE_BY] = made_by
            overload = overload_of(node.target)
            has_result = overload is None or returns_anything(overload)
            if node.op == "call_function" and ((is_new and has_result) or self._is_stale(node)):
                node.meta["val"] = self._memo.value(node, operand, self._fake)

    def _is_stale(self, node: Node) -> bool:
        shared = self._shared.get(node.name)
        return bool(shared and shared - storages_of(*node.all_input_nodes))


Form = tuple[tuple[str, str, tuple[int | None, ...]], ...]
"""Dtype, device and shape of each tensor. Symbolic sizes count as equal, so that no guard is added."""


@dataclass(frozen=True, slots=True)
class _Interface:
    inputs: dict[str, Form]
    overwritten: frozenset[str]
    outputs: list[tuple[Form, frozenset[str]]]

    @classmethod
    def of(cls, module: GraphModule) -> "_Interface":
        holders: dict[int, set[str]] = {}
        inputs = module.graph.find_nodes(op="placeholder")
        for node in inputs:
            for key in storages_of(node):
                holders.setdefault(key, set()).add(str(node.target))

        def names_of(*nodes: Node) -> frozenset[str]:
            return frozenset(name for key in storages_of(*nodes) for name in holders.get(key, ()))

        written = (node for call in module.graph.nodes for node in overwritten_nodes(call))
        outputs = [output for output in outputs_of(module) if isinstance(output, Node)]
        return cls(
            {str(node.target): _form_of(node) for node in inputs},
            names_of(*dict.fromkeys(written)),
            [(_form_of(node), names_of(node)) for node in outputs],
        )

    def difference_from(self, before: "_Interface", preserves: Preserves) -> str | None:
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


def _form_of(node: Node) -> Form:
    def sizes_of(tensor: torch.Tensor) -> tuple[int | None, ...]:
        return tuple(None if isinstance(size, torch.SymInt) else size for size in tensor.shape)

    return tuple((str(each.dtype), str(each.device), sizes_of(each)) for each in tensors_in(value_of(node)))
