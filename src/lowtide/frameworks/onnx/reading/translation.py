"""What reading a model gives: the graph, and which nodes of the model its ops stand for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import TypeProto

from lowtide.engine.graph import Graph
from lowtide.frameworks.onnx.shapes.known_forms import Form


@dataclass(frozen=True, slots=True)
class Value:
    """One named value of an ONNX graph."""

    buffer: int
    """The buffer its data lies in; a view's is its base's."""
    type: TypeProto
    keeps: tuple[int, ...] = ()
    """Buffers that must stay until the value can be made: the target shape of a view that has not run yet."""


@dataclass(slots=True, kw_only=True)
class OpDraft:
    """One op in the making; ids are those of the graph builder."""

    name: str
    kind: str
    nodes: list[int]
    """Positions of the nodes that run as this op: the node itself, then those that only look at its results."""
    reads: list[int]
    writes: list[int] = field(default_factory=list[int])
    mutates: list[int] = field(default_factory=list[int])
    in_place: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scratch_bytes: int = 0
    callees: list[str] = field(default_factory=list[str])
    may_rerun: bool = True
    """Whether the runtime would free what a rerun computes."""
    fixed: bool = False
    """Random, opaque, or calling something that is: it runs once and keeps its place among its like."""


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph in the attribute of a node, and its translation."""

    node: int
    label: str
    translation: "Translation"


@dataclass(frozen=True, slots=True)
class Translation:
    """A lowtide graph and the ONNX nodes behind it."""

    graph: Graph
    nodes_of_ops: tuple[tuple[int, ...], ...]
    """Per op, the positions of its nodes; nodes in none of them are views and constants."""
    bodies: Mapping[str, Body]
    """Subgraphs of this graph's nodes by callee name; function bodies are left out, their nodes stand elsewhere."""
    values: Mapping[str, Value]
    """The values of this graph by name; those of functions and subgraphs are not among them."""
    forms: tuple[Form | None, ...]
    """Per buffer, the element type and shape of what it was made for; None where they are not known."""
