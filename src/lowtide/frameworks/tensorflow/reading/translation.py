"""What reading a graph gives: lowtide's graph, and the node behind every op."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.graphs.attributes import Shape
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """A function of the library behind a subgraph."""

    function: str
    """Its name in the library; the subgraph's tells calls with arguments of other sizes apart."""
    translation: "TensorflowTranslation"
    results: Sequence[Shape]
    """The shapes of its results, as far as they are known."""


@dataclass(frozen=True, slots=True)
class TensorflowTranslation:
    """A lowtide graph and the nodes behind it."""

    graph: Graph
    body: NodeBody
    nodes: Sequence[int]
    """Per op of the graph, its node; the others are views, sources, or needed by nothing that is asked for."""
    ports: Sequence[Port]
    """Per buffer of the graph, the output that defines it."""
    results: Sequence[Port]
    """What is asked for."""
    fed: Sequence[Port]
    """Outputs that come from outside."""
    called: Mapping[str, CalledFunction]
    """By the names of subgraphs, those of callees of callees too."""
    pairs: dict[int, int]
    """Nodes that TensorFlow may make one of: the second of each pair, and the first; they run side by side."""
