"""Regions written as nodes of a model: a Scan whose body computes a chunk, between views that cut and join.

A Scan reads its slices where they lie and writes its results where they shall lie: what is cut along its first axis is
only seen in another shape, and nothing is copied but results that the graph returns.
"""

from collections.abc import Callable, Sequence

from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from lowtide.frameworks.onnx.chunks.region import ChunkedRegion
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.loading.renamed import renamed
from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import VIEWS

Naming = Callable[[str], str]


def scan_of(
    values: MainValues, region: ChunkedRegion, chunks: int, new_name: Naming, results: Sequence[str]
) -> list[NodeProto]:
    """Return the nodes that compute a region in so many chunks, and write its results under the given names.

    `new_name` returns a name that nothing has yet and that begins as its argument.
    """
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
    """Return what computes a chunk of the results of a node."""
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
