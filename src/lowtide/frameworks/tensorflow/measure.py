"""Measure graphs by TensorFlow's report of a run."""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.attributes import integer, shape
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.operators import SOURCES, VARIABLES, VIEWS
from lowtide.frameworks.tensorflow.read import Fed
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port, body_of_graph
from lowtide.frameworks.tensorflow.rewrites.starts import with_starts
from lowtide.frameworks.tensorflow.session import SessionRun, run_session, with_host_stand_ins
from lowtide.frameworks.tensorflow.shapes import is_full

_TYPES = "1:f4 2:f8 3:i4 4:u1 5:i2 6:i1 8:c8 9:i8 10:? 17:u2 18:c16 19:f2 22:u4 23:u8"
_NUMPY = {int(number): name for number, name in (each.split(":") for each in _TYPES.split())}


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run of a graph."""

    peak_bytes: int
    """Peak bytes of live outputs and feeds, without constants and variables."""
    order: tuple[str, ...]
    """Nodes in the order of their runs."""
    on_host: tuple[str, ...]
    """Nodes that ran on the CPU that replaces the host."""
    host_bytes: int
    """Peak bytes on that CPU."""
    values: tuple[Any, ...]
    """Values of the fetches."""
    state: tuple[Any, ...]
    """Values of the variables after the run."""

    @property
    def compared(self) -> tuple[Any, ...]:
        """Values of fetches and variables."""
        return *self.values, *self.state


def run_graph(
    graph: GraphDef,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    variables: Mapping[str, Any] | None = None,
    *,
    with_grappler: bool = False,
) -> GraphRun:
    """Run a graph on one thread without optimizers, and measure its peak by TensorFlow's report.

    `variables` are initial values by node. A second CPU replaces a missing GPU's host. `with_grappler` enables
    TensorFlow's optimizers; nodes that these add do not count. Raises MissingExtraError without TensorFlow,
    UnsupportedError if it cannot run the graph.
    """
    outputs = [name for name in fetches if ":" in name]
    targets = [name for name in fetches if ":" not in name]
    try:
        started, starts, ends = with_starts(graph, variables or {})
        run = run_session(started, feeds, outputs, targets, starts, ends, with_grappler=with_grappler)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # TensorFlow raises several types
        raise UnsupportedError(f"TensorFlow cannot run the graph: {one_line(error)}; leave out --measure") from None
    body = body_of_graph(with_host_stand_ins(graph).nodes, "the graph")
    fed = {name.partition(":")[0] for name in feeds}
    kept = {body.port(name) for name in outputs}
    on_device, on_host = _peaks(body, run, fed, kept)
    return GraphRun(
        peak_bytes=sum(np.asarray(value).nbytes for value in feeds.values()) + on_device,
        host_bytes=on_host,
        order=tuple(each.name for each in run.nodes),
        on_host=tuple(each.name for each in run.nodes if each.is_on_host and each.name in body.places),
        values=tuple(run.values),
        state=tuple(run.state),
    )


def made_up_feeds(fed: Fed) -> dict[str, Any]:
    """Return reproducible feeds; raises UnsupportedError if not numeric or of unknown shapes."""
    feeds: dict[str, Any] = {}
    for name, (kind, sizes) in fed.items():
        dtype = _NUMPY.get(kind)
        if dtype is None or not is_full(sizes):
            raise UnsupportedError(f"feed {name!r} is not a numeric tensor of a known shape; leave out --measure")
        feeds[name] = np.random.default_rng(zlib.crc32(name.encode())).random(sizes).astype(dtype)
    return feeds


def made_up_variables(graph: GraphDef) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for node in graph.nodes:
        sizes, kind = shape(node.attribute("shape")), _NUMPY.get(integer(node.attribute("dtype")))
        if node.op in VARIABLES and kind is not None and is_full(sizes):
            made = np.random.default_rng(zlib.crc32(node.name.encode())).normal(0, 0.1, sizes)
            values[node.name] = made.astype(kind)
    return values


def _peaks(body: NodeBody, run: SessionRun, fed: set[str], kept: set[Port]) -> tuple[int, int]:
    """Return peak bytes on the device and on the CPU that replaces the host."""
    ran = {each.name: each for each in run.nodes}
    readers: Counter[Port] = Counter()
    for place, node in enumerate(body.nodes):
        if node.name in ran:
            readers.update(set(body.data[place]))
    holders: Counter[int] = Counter()
    size_at: dict[int, int] = {}
    live, peaks = [0, 0], [0, 0]
    for each in run.nodes:
        place = body.places.get(each.name)
        if place is None or each.name in fed or body.nodes[place].op in SOURCES:
            continue
        for pointer, size in each.outputs.values():
            if not holders[pointer]:
                if not size or body.nodes[place].op in VIEWS:
                    continue  # a view of storage that is not counted
                size_at[pointer] = size
                live[each.is_on_host] += size
            holders[pointer] += 1
        peaks = [max(peak, held) for peak, held in zip(peaks, live, strict=True)]
        done = set(body.data[place])
        readers.subtract(done)
        unread = {(place, port) for port in each.outputs if not readers[place, port]}
        for source, port in sorted({*unread, *(source for source in done if not readers[source])}):
            reported = ran.get(body.nodes[source].name)
            pointer, _ = (0, 0) if reported is None else reported.outputs.get(port, (0, 0))
            if holders[pointer] and (source, port) not in kept:
                holders[pointer] -= 1
                live[reported is not None and reported.is_on_host] -= 0 if holders[pointer] else size_at[pointer]
    return peaks[0], peaks[1]
