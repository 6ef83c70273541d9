"""Rewrites that clean up dead code, common subexpressions and views."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import merge_common_subexpressions, merges_common_subexpressions
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.operators import is_view, overload_of
from lowtide.frameworks.torch.reading.effects import is_random
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class DropDeadCode(Rewrite[Node]):
    """Erase ops without users, except ops with effects and lowtide's own ops."""

    name = "drop-dead-code"
    source = "FX's elimination of dead code."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [node for node in module.graph.nodes if not node.users and not _has_effects(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        module.graph.eliminate_dead_code(_has_effects)
        return module


def _has_effects(node: Node) -> bool:
    overload = overload_of(node.target)
    return (
        node.is_impure(impure_random=False)
        or is_random(node)
        or (overload is not None and overload.namespace == "lowtide")
    )


@dataclass(frozen=True)
class MergeCommonSubexpressions(Rewrite[Node]):
    """Merge pure nodes with the same op and arguments, if PyTorch's configuration allows it."""

    name = "merge-common-subexpressions"
    source = "PyTorch's partitioner, by its own function."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return list(module.graph.find_nodes(op="output")) if merges_common_subexpressions() else []

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        merge_common_subexpressions(module)
        return module


@dataclass(frozen=True)
class FollowViews(Rewrite[Node]):
    """Derive new values for views that do not share the storage of their input.

    PyTorch merges and copies ops without updating their views, and traces views of a constant with their own storage.
    """

    name = "follow-views"
    source = "A view shares the storage of its input, by its schema."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [node for node in module.graph.nodes if _has_other_storage(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            del node.meta["val"]
        return module


def _has_other_storage(node: Node) -> bool:
    is_part = node.target is operator.getitem or is_view(node.target)
    known = all(value_of(source) is not None for source in node.all_input_nodes)
    return is_part and known and bool(storages_of(node) - storages_of(*node.all_input_nodes))
