"""Read a GraphDef into a lowtide graph."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.collection import without_collection
from lowtide.core.errors import InputError, UnsupportedError, UsageError
from lowtide.frameworks.tensorflow.graphs.attributes import Shape
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.operators import PLACEHOLDERS
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port, body_of_graph, refuse_v1
from lowtide.frameworks.tensorflow.reading.devices import Devices, devices_of
from lowtide.frameworks.tensorflow.reading.translate import translate
from lowtide.frameworks.tensorflow.reading.translation import Asked, Known, TensorflowTranslation
from lowtide.frameworks.tensorflow.shapes import (
    Shapes,
    Sizes,
    bytes_by_output,
    infer_shapes,
    is_full,
    known_shapes,
    output_types,
)
from lowtide.frameworks.wire import named_errors

Fed = dict[str, tuple[int, Shape]]
"""Data types and shapes by output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Arguments of `TensorflowModel`."""

    feeds: Sequence[str] = ()
    fetches: Sequence[str] = ()
    shapes: Mapping[str, Sequence[int]]
    dims: Mapping[str, int]
    devices: Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGraph:
    """A graph with its sizes, feeds and devices."""

    translation: TensorflowTranslation
    fed: Fed
    targets: Sequence[str]
    """Fetched nodes without outputs."""
    shapes: Shapes
    sizes: Sizes
    devices: Devices


@without_collection()
def read_graph(graph: GraphDef, request: Request, where: str) -> ReadGraph:
    """Read a GraphDef into a graph; raises as `TensorflowModel`."""
    with named_errors(where):
        if not graph.nodes:
            raise InputError(f"{where}: the graph has no nodes; check that this is a GraphDef")
        body = body_of_graph(graph.nodes, where)
        asked = _asked(body, request)
        needed = body.ancestors([*(node for node, _ in asked.results), *asked.targets], asked.fed)
        refuse_v1(body, needed)
        shapes = _shapes(graph, body, needed, request, where)
        devices = devices_of(graph.nodes, request.devices)
        sizes = bytes_by_output(graph.nodes, shapes)
        translation = translate("graph", graph, body, Known(shapes, sizes), asked, devices)
        fed: Fed = {}
        for (node, port), name in zip(translation.fed, tensor_names(body, translation.fed), strict=True):
            fed[name] = output_types(graph.nodes[node])[port], shapes.get((graph.nodes[node].name, port))
        targets = [graph.nodes[node].name for node in asked.targets if not output_types(graph.nodes[node])]
        return ReadGraph(translation=translation, fed=fed, targets=targets, shapes=shapes, sizes=sizes, devices=devices)


def _asked(body: NodeBody, request: Request) -> Asked:
    fed = {_named(body, name, "feed")[0] for name in request.feeds}
    if request.fetches:
        ports = [_named(body, name, "fetch") for name in request.fetches]
    else:
        read = {source for node in range(len(body.nodes)) for source in body.neighbors(node)}
        ports = [(node, 0) for node in range(len(body.nodes)) if node not in read]
    results: list[Port] = []
    targets: list[int] = []
    for node, port in ports:
        count = len(output_types(body.nodes[node])) or port
        if request.fetches:
            (results if count else targets).append((node, port) if count else node)  # pyright: ignore
        else:
            results += [(node, each) for each in range(count)]
    if not request.fetches:
        targets = list(range(len(body.nodes)))
    return Asked(fed=fed, results=results, targets=targets)


def _named(body: NodeBody, name: str, role: str) -> Port:
    node = name.partition(":")[0]
    if node not in body.places:
        raise UsageError(f"{role} {name!r} is not a node of the graph; give names like NODE or NODE:0")
    return body.port(name)


def _shapes(
    graph: GraphDef, body: NodeBody, needed: Sequence[bool], request: Request, where: str
) -> dict[tuple[str, int], Shape]:
    for name in request.shapes:
        _named(body, name, "the shape of")
    shapes = known_shapes(graph.nodes, request.shapes)
    _bind(body, shapes, request.dims)
    free = [
        node.name
        for place, node in enumerate(graph.nodes)
        if needed[place] and node.op in PLACEHOLDERS and not is_full(shapes.get((node.name, 0)))
    ]
    if free:
        raise UnsupportedError(_free_line(where, free, shapes))
    is_bound = bool(request.dims or request.shapes)  # inference may then improve recorded shapes
    missing = any(
        needed[place] and ((node.name, port) not in shapes or (is_bound and not is_full(shapes[node.name, port])))
        for place, node in enumerate(graph.nodes)
        for port in range(len(output_types(node)))
    )
    return infer_shapes(graph, shapes, where) if missing else shapes


def _free_line(where: str, names: Sequence[str], shapes: Mapping[tuple[str, int], Shape]) -> str:
    name = names[0]
    sizes = shapes.get((name, 0))
    how = (
        f"shapes={{{name!r}: [...]}}"
        if sizes is None
        else " ".join(f"--dim {name}.{place}=SIZE" for place, size in enumerate(sizes) if size < 0)
    )
    return f"{where}: {len(names)} placeholders have no full shape, {name!r} first; give its sizes: {how}"


def _bind(body: NodeBody, shapes: dict[tuple[str, int], Shape], dims: Mapping[str, int]) -> None:
    for name, size in dims.items():
        node, _, place = name.rpartition(".")
        sizes = shapes.get((node, 0)) if node in body.places else None
        if sizes is None or not place.isdigit() or int(place) >= len(sizes):
            raise UsageError(f"{name!r} is not a dimension of a placeholder; write NODE.INDEX, like x.0")
        if sizes[int(place)] not in (-1, size):
            raise UsageError(f"{name!r} is {sizes[int(place)]} in the graph and cannot be {size}")
        shapes[node, 0] = (*sizes[: int(place)], size, *sizes[int(place) + 1 :])


def tensor_names(body: NodeBody, ports: Iterable[Port]) -> list[str]:
    return [f"{body.nodes[node].name}:{port}" for node, port in ports]
