"""Fake values after a rewrite: new nodes get what their ops give, and what looked at a storage follows it."""

from typing import Any

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.fake_memo import FakeMemo
from lowtide.frameworks.torch.internals.nodes import first_fake, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import overload_of, returns_anything
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.rewrites.rewrite import HAD_NO_VALUE, MADE_BY


class Values:
    """The values of a program before a rewrite, by the names of its nodes."""

    def __init__(self, module: GraphModule) -> None:
        nodes = list(module.graph.nodes)
        self._held = [value_of(node) for node in nodes]  # storages are known by address, so none may go away meanwhile
        for node in nodes:
            if "val" not in node.meta:
                node.meta[HAD_NO_VALUE] = True
        self._shared = {node.name: storages_of(node) & storages_of(*node.all_input_nodes) for node in nodes}
        """The storages in which a node lies together with one of its inputs."""
        self._fake = first_fake(self._held)
        self._memo = FakeMemo()

    def derive(self, module: GraphModule, made_by: str) -> None:
        """Give a value to every node that has none; one that lay in an input's storage lies in that input's new one.

        New nodes are marked as made by a rewrite of some name.
        """

        def given(source: Node) -> Any:
            value = value_of(source)
            return attribute(module, str(source.target)) if value is None and source.op == "get_attr" else value

        for node in module.graph.nodes:
            is_new = not node.meta.pop(HAD_NO_VALUE, False) and "val" not in node.meta
            if node.op == "call_function" and is_new:
                node.meta[MADE_BY] = made_by
            if node.op == "call_function" and ((is_new and _gives(node)) or self._is_left_behind(node)):
                node.meta["val"] = self._memo.value(node, given, self._fake)

    def _is_left_behind(self, node: Node) -> bool:
        shared = self._shared.get(node.name)
        return bool(shared and shared - storages_of(*node.all_input_nodes))


def _gives(node: Node) -> bool:
    overload = overload_of(node.target)
    return overload is None or returns_anything(overload)
