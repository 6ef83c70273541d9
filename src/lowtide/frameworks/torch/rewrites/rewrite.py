"""The interface of rewrites (`Rewrite`), and helpers to write one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import graph_module, outputs_of

SiteT = TypeVar("SiteT")
MADE_BY = "lowtide_made_by"
HAD_NO_VALUE = "lowtide_had_no_value"
"""Meta key of nodes without a value before a rewrite: new nodes may reuse names."""


@dataclass(frozen=True, slots=True)
class Preserves:
    """Guarantees of a rewrite; by default all bits of outputs and overwritten inputs."""

    up_to: str = ""
    """How results may differ; empty if bit-equal."""
    inputs: bool = True
    outputs: bool = True
    """Whether outputs keep dtypes, shapes, and the inputs they are views of."""


class Rewrite(ABC, Generic[SiteT]):
    """A frozen dataclass of settings. Only `run_rewrites` calls `sites` and `apply`."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Why the rewrite is correct, in one sentence."""
    preserves: ClassVar[Preserves] = Preserves()

    @abstractmethod
    def sites(self, module: GraphModule) -> Sequence[SiteT]:
        """Return the places to rewrite, in program order. The program stays unchanged."""

    @abstractmethod
    def apply(self, module: GraphModule, sites: Sequence[SiteT]) -> GraphModule:
        """Rewrite all sites. Returns the changed module or a new one.

        New nodes have no value, unless they are the tensor of another node.
        """


def origin_of(node: Node) -> dict[str, Any]:
    """Return the meta data for a node's replacement."""
    return {key: known for key, known in node.meta.items() if key not in ("val", HAD_NO_VALUE)}


def call_like(node: Node, graph: Graph, target: Any, /, *args: Any, **kwargs: Any) -> Node:
    """Append a call with the meta data of the node it replaces."""
    made = graph.create_node("call_function", target, args, kwargs)
    made.meta = origin_of(node)
    return made


Append = Callable[[Graph, Node, dict[Node, Node]], object]
"""Appends a node's replacement to a new graph, and adds it to the map of copies."""


def copy_module(module: GraphModule, nodes: Container[Node], append: Append) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        if node in nodes:
            append(graph, node, made)
        elif node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    return graph_module(module, graph)


def replace_uses(node: Node, before: Node, make: Callable[[Node], Node]) -> None:
    users = list(node.users)
    with node.graph.inserting_before(before):
        made = make(node)
    for user in users:
        user.replace_input_with(node, made)


def save_instead(module: GraphModule, n_outputs: int, made: Mapping[Node, Node]) -> None:
    """Replace the saved values of a forward pass by those in `made`."""
    (end,) = module.graph.find_nodes(op="output")
    results = outputs_of(module)
    saved = [made.get(value, value) for value in results[n_outputs:]]
    end.args = ((*results[:n_outputs], *saved),)
