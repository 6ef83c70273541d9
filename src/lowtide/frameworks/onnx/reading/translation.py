"""The result of reading a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import TypeProto

from lowtide.engine.graph import Graph
from lowtide.frameworks.onnx.shapes.known_forms import Form


@dataclass(frozen=True, slots=True)
class Value:
    """A named value."""

    buffer: int
    """A view has its base's."""
    type: TypeProto
    keeps: tuple[int, ...] = ()
    """Buffers needed to make a view."""


@dataclass(slots=True, kw_only=True)
class OpDraft:
    """An op under construction."""

    name: str
    kind: str
    nodes: list[int]
    """Positions: the op's node, then those reading shapes of results."""
    reads: list[int]
    writes: list[int] = field(default_factory=list[int])
    mutates: list[int] = field(default_factory=list[int])
    in_place: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scratch_bytes: int = 0
    callees: list[str] = field(default_factory=list[str])
    may_rerun: bool = True
    """Whether recomputed results would be freed."""
    fixed: bool = False
    """Random, opaque, or calling such an op: runs once, in order."""
    has_half: bool = False
    """Whether it touches float16. Casts that the runtime adds on loading depend on all readers, so it runs once."""


@dataclass(frozen=True, slots=True)
class Body:
    """A translated subgraph of a node."""

    node: int
    label: str
    translation: "Translation"


@dataclass(frozen=True, slots=True)
class Translation:
    """A graph and its nodes."""

    graph: Graph
    nodes_of_ops: tuple[tuple[int, ...], ...]
    """Positions by op, without views and constants."""
    bodies: Mapping[str, Body]
    """By callee name, without functions."""
    values: Mapping[str, Value]
    forms: tuple[Form | None, ...]
    """By buffer, the form of its first value."""
    has_unknown_sizes: bool
