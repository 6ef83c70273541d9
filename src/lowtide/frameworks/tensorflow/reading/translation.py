"""Input and result of the translation of nodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.graphs.attributes import Shape
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port
from lowtide.frameworks.tensorflow.shapes import Shapes, Sizes


@dataclass(frozen=True, slots=True)
class Known:
    """Known shapes and bytes of outputs."""

    shapes: Shapes
    sizes: Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Feeds and fetches of a body."""

    fed: Collection[int]
    results: Sequence[Port]
    targets: Sequence[int] = ()
    """Nodes that must run."""
    counted: Collection[int] = ()
    """Fed nodes with bytes that the caller counts."""


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """A library function behind a subgraph."""

    function: str
    translation: "TensorflowTranslation"
    results: Sequence[Shape]


@dataclass(slots=True)
class Called:
    """Functions translated so far, once per sizes of arguments."""

    names: dict[tuple[str, bool, tuple[int, ...], tuple[Shape, ...]], str] = field(default_factory=dict)
    """Subgraphs by function, whether in a loop, and bytes and shapes of arguments."""
    functions: dict[str, CalledFunction] = field(default_factory=dict[str, CalledFunction])
    """By subgraph."""
    open: list[str] = field(default_factory=list[str])
    """Functions in translation, the innermost last."""


@dataclass(frozen=True, slots=True)
class TensorflowTranslation:
    """A lowtide graph and the nodes behind it."""

    graph: Graph
    body: NodeBody
    nodes: Sequence[int]
    """By op. Other nodes are views, sources, or not needed."""
    ports: Sequence[Port]
    """The output that defines each buffer."""
    results: Sequence[Port]
    """The fetched outputs."""
    fed: Sequence[Port]
    """Outputs that the caller provides."""
    called: Mapping[str, CalledFunction]
    """By subgraph, with callees of callees."""
    pairs: dict[int, int]
    """Nodes that TensorFlow may fuse: the second of each pair, and the first, which runs right before it."""
