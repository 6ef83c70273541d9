"""Write regions as Scan nodes, between views that cut and join.

Cutting along the first axis is a view, so only results that the graph returns are copied.
"""

from collections.abc import Callable, Mapping, Sequence

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from lowtide.frameworks.onnx.chunks.choose import Chosen
from lowtide.frameworks.onnx.chunks.region import ChunkedRegion, order_in_one_go
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.loading.rewrite import Pieces, renamed, rewritten_model
from lowtide.frameworks.onnx.operators.nodes import NewNames, operator_of
from lowtide.frameworks.onnx.operators.tables import VIEWS
from lowtide.frameworks.wire import Content

Naming = Callable[[str], str]


def scan_of(
    values: MainValues, region: ChunkedRegion, chunks: int, new_name: Naming, results: Sequence[str]
) -> list[NodeProto]:
    """Return the nodes that compute a region in chunks and write `results`."""
    inside = {name: new_name(f"{name}/chunk") for name in region.axes}
    joined = [new_name(f"{name}/chunks") for name in region.results]
    nodes: list[NodeProto] = []
    cut: list[str] = []
    for name in region.sliced:
        cut.append(new_name(f"{name}/chunks"))
        nodes += _reshape(name, cut[-1], _in_chunks(values, region, name, chunks), new_name)
    body = helper.make_graph(
        [made for place in region.nodes for made in _chunk_of(values, region, place, chunks, inside, new_name)],
        new_name("chunk"),
        [_value(values, region, name, chunks, inside[name]) for name in region.sliced],
        [_value(values, region, name, chunks, inside[name]) for name in region.results],
    )
    name = new_name(f"{values.nodes[region.nodes[0]].name or region.results[0]}/chunks")
    nodes.append(helper.make_node("Scan", cut, joined, name=name, body=body, num_scan_inputs=len(cut)))
    for own, there, result in zip(region.results, joined, results, strict=True):
        nodes += _reshape(there, result, list(values.shape(own) or ()), new_name)
    return nodes


def _chunk_of(
    values: MainValues, region: ChunkedRegion, place: int, chunks: int, inside: dict[str, str], new_name: Naming
) -> list[NodeProto]:
    node = values.nodes[place]
    outputs = {name: inside[name] for name in node.output if name}
    if operator_of(node) in VIEWS and len(node.output) == 1 and node.op_type != "Identity":
        source = inside[node.input[0]]
        shape = _of_a_chunk(values, region, node.output[0], chunks)
        return _reshape(source, outputs[node.output[0]], shape, new_name)
    copy = NodeProto()
    copy.CopyFrom(node)
    return [renamed(copy, {**outputs, **{name: inside[name] for name in node.input if name in inside}})]


def _reshape(source: str, result: str, shape: Sequence[int], new_name: Naming) -> list[NodeProto]:
    sizes = new_name(f"{result}/shape")
    content = helper.make_tensor(sizes, TensorProto.INT64, [len(shape)], shape)
    return [
        helper.make_node("Constant", [], [sizes], value=content),
        helper.make_node("Reshape", [source, sizes], [result], name=new_name(f"{result}/view")),
    ]


def _of_a_chunk(values: MainValues, region: ChunkedRegion, name: str, chunks: int) -> list[int]:
    shape = list(values.shape(name) or ())
    shape[region.axes[name]] //= chunks
    return shape


def _in_chunks(values: MainValues, region: ChunkedRegion, name: str, chunks: int) -> list[int]:
    return [chunks, *_of_a_chunk(values, region, name, chunks)]


def _value(values: MainValues, region: ChunkedRegion, name: str, chunks: int, inside: str) -> ValueInfoProto:
    shape = _of_a_chunk(values, region, name, chunks)
    return helper.make_tensor_value_info(inside, values.element_type(name), shape)


Pairs = Sequence[tuple[str, str]]
"""Outputs to compare."""


def in_chunks(content: Content, graph: GraphProto, values: MainValues, chosen: Mapping[ChunkedRegion, int]) -> Pieces:
    """Return a model's bytes with regions in chunks."""
    names = NewNames(graph)
    nodes: list[int | NodeProto] = []
    for each in order_in_one_go(values, list(chosen)) or ():
        nodes += [each] if isinstance(each, int) else scan_of(values, each, chosen[each], names.new, each.results)
    inner = {name for region in chosen for name in region.axes.keys() - {*region.sliced, *region.results}}
    return rewritten_model(content, nodes, gone=inner)


def both_ways(
    content: Content, graph: GraphProto, values: MainValues, chosen: Sequence[Chosen]
) -> tuple[Pieces, list[list[Pairs]]]:
    """Return a model's bytes with outputs of all regions, computed as a whole and in chunks.

    Also by region and number of chunks, the outputs to compare.
    """
    names = NewNames(graph)
    nodes: list[int | NodeProto] = list(range(len(graph.node)))
    outputs: dict[str, ValueInfoProto] = {}
    pairs: list[list[Pairs]] = []
    for each in chosen:
        pairs.append([])
        for chunks in each.chunks:
            results = [names.new(f"{name}/trial") for name in each.region.results]
            nodes += scan_of(values, each.region, chunks, names.new, results)
            pairs[-1].append(list(zip(each.region.results, results, strict=True)))
            for name, result in pairs[-1][-1]:
                kind, shape = values.element_type(name), values.shape(name)
                outputs |= {one: helper.make_tensor_value_info(one, kind, shape) for one in (name, result)}
    return rewritten_model(content, nodes, outputs=list(outputs.values())), pairs
