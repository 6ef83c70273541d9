"""What reading a net gives: the graph, and what its ops and buffers stand for."""

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.engine.graph import Graph


@dataclass(frozen=True, slots=True)
class OpBuffers:
    """One op of the graph, as the net has it."""

    position: int
    """Its place in the net."""
    inputs: tuple[int, ...]
    """The buffer of every input, in their order."""
    outputs: tuple[int, ...]
    """The buffer of every output, in their order."""
    controls: Mapping[str, int]
    """Buffers of the blobs whose writers it waits for, by name."""
    inner: Mapping[str, int]
    """Buffers that step nets see by name, beside inputs and outputs."""


@dataclass(frozen=True, slots=True)
class NetTranslation:
    """A lowtide graph and the net behind it."""

    graph: Graph
    ops: tuple[OpBuffers, ...]
    """Per op of the graph; ops of the net in none of them free blobs."""
    blobs: tuple[str, ...]
    """Per buffer, the name of the blob that holds it in the net."""
    fixed: frozenset[int]
    """Buffers that keep their name: the caller or a reader outside looks for them."""
