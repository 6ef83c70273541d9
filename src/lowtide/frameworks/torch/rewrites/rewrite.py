"""What a rewrite is: a rule that turns a program into another one that computes the same, and says what it preserves.

Every change that lowtide makes to a program itself is a rewrite, one a file: splitting an op, replacing one, reading
through a copy, also what only Inductor needs to keep to a plan. What writes a plan down (its order, reruns and copies),
what cuts a program in two or joins two, and marks for somebody else's partitioner are none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of

SiteT = TypeVar("SiteT")
MADE_BY = "lowtide_made_by"
"""In the meta data of a node that a rewrite made: the name of that rewrite."""
HAD_NO_VALUE = "lowtide_had_no_value"
"""In the meta data of a node that stood for nothing before a rewrite; a new node may have the name of an old one."""


@dataclass(frozen=True, slots=True)
class Preserves:
    """What stays of a program: every bit that it returns or writes into its inputs, but for what is said here."""

    up_to: str = ""
    """How the two programs may differ all the same; empty where they may not."""
    inputs: bool = True
    """Whether the program takes the same inputs, in the same forms."""
    outputs: bool = True
    """Whether every output has its form, and lies in the same inputs as before."""


BITS = Preserves()
"""Whoever runs the program can tell no difference."""


class Rewrite(ABC, Generic[SiteT]):
    """One rule; a frozen dataclass whose fields are its settings.

    `run_rewrites` is the only caller of both methods. It gives the nodes that a rewrite makes their fake values, lets
    views follow, and checks the result, so a rewrite does none of that.
    """

    name: ClassVar[str]
    """What the table of rewrites calls it."""
    source: ClassVar[str]
    """Where the rule comes from, in one sentence."""
    preserves: ClassVar[Preserves] = BITS

    @abstractmethod
    def sites(self, module: GraphModule) -> Sequence[SiteT]:
        """Return what would be rewritten, in program order, and change nothing; empty where the rule does not apply."""

    @abstractmethod
    def apply(self, module: GraphModule, sites: Sequence[SiteT]) -> GraphModule:
        """Rewrite all sites; returns the module that was given, changed, or a new one.

        The nodes that this makes carry no value, or the one that is theirs from now on. Others keep their names.
        """


def origin_of(node: Node) -> dict[str, Any]:
    """Return a node's source lines and marks, all but its value or that it has none, for a node that is made of it."""
    return {key: known for key, known in node.meta.items() if key not in ("val", HAD_NO_VALUE)}


def call_like(node: Node, graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Append a call to a graph, for a node that it is made of."""
    made = graph.create_node("call_function", target, args, kwargs)
    made.meta = origin_of(node)
    return made


def put_behind(node: Node, before: Node, make: Callable[[Node], Node]) -> None:
    """Let whoever uses a node use what is made of it instead; that is inserted before another node."""
    users = list(node.users)
    with node.graph.inserting_before(before):
        made = make(node)
    for user in users:
        user.replace_input_with(node, made)


def save_instead(module: GraphModule, n_outputs: int, made: Mapping[Node, Node]) -> None:
    """Let a forward pass save what is made of some values instead of them; its own outputs come first, and stay."""
    (end,) = module.graph.find_nodes(op="output")
    results = outputs_of(module)
    saved = [made.get(value, value) for value in results[n_outputs:]]
    end.args = ((*results[:n_outputs], *saved),)
