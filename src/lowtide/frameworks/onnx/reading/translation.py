"""The result of reading a model: its graph, and the nodes behind every op."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import TypeProto

from lowtide.engine.graph import Graph
from lowtide.frameworks.onnx.shapes.known_forms import Form


@dataclass(frozen=True, slots=True)
class Value:
    """One named value of an ONNX graph."""

    buffer: int
    """Its buffer; a view's is that of its base."""
    type: TypeProto
    keeps: tuple[int, ...] = ()
    """Buffers needed until the value can be made, such as the target shape of a view."""


@dataclass(slots=True, kw_only=True)
class OpDraft:
    """An op under construction, with ids of the graph builder."""

    name: str
    kind: str
    nodes: list[int]
    """Positions of its nodes: the op's own, then nodes that only read shapes of its results."""
    reads: list[int]
    writes: list[int] = field(default_factory=list[int])
    mutates: list[int] = field(default_factory=list[int])
    in_place: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scratch_bytes: int = 0
    callees: list[str] = field(default_factory=list[str])
    may_rerun: bool = True
    """Whether the runtime would free results of a recomputed run."""
    fixed: bool = False
    """Whether it is random, opaque, or calls such an op: it runs once and keeps its place among fixed ops."""


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph in a node's attribute, and its translation."""

    node: int
    label: str
    translation: "Translation"


@dataclass(frozen=True, slots=True)
class Translation:
    """A graph and the ONNX nodes behind it."""

    graph: Graph
    nodes_of_ops: tuple[tuple[int, ...], ...]
    """Positions of nodes by op; all other nodes are views and constants."""
    bodies: Mapping[str, Body]
    """Subgraphs of this graph's nodes by callee name, without functions, whose nodes are elsewhere."""
    values: Mapping[str, Value]
    """Values of this graph by name, without those of callees."""
    forms: tuple[Form | None, ...]
    """By buffer, the form of its first value; None if unknown."""
