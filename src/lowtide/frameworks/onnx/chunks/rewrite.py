"""Models with regions in chunks, and models that compute regions both ways, to see whether bits agree."""

from collections.abc import Mapping, Sequence

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from lowtide.frameworks.onnx.chunks.choose import Chosen
from lowtide.frameworks.onnx.chunks.order import order_in_one_go
from lowtide.frameworks.onnx.chunks.region import ChunkedRegion
from lowtide.frameworks.onnx.chunks.scans import scan_of
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.loading.rewritten import Pieces, rewritten_model
from lowtide.frameworks.onnx.operators.names import NewNames
from lowtide.frameworks.wire import Content

Pairs = Sequence[tuple[str, str]]
"""Names of outputs that are to agree."""


def in_chunks(content: Content, graph: GraphProto, values: MainValues, chosen: Mapping[ChunkedRegion, int]) -> Pieces:
    """Return a model's bytes with regions in chunks, each in a number of them."""
    names = NewNames(graph)
    nodes: list[int | NodeProto] = []
    for each in order_in_one_go(values, list(chosen)) or ():
        nodes += [each] if isinstance(each, int) else scan_of(values, each, chosen[each], names.new, each.results)
    inner = {name for region in chosen for name in region.axes.keys() - {*region.sliced, *region.results}}
    return rewritten_model(content, nodes, gone=inner)


def both_ways(
    content: Content, graph: GraphProto, values: MainValues, chosen: Sequence[Chosen]
) -> tuple[Pieces, list[list[Pairs]]]:
    """Return a model's bytes with all that was computed before, and regions in chunks beside it.

    Also by region, and by number of chunks of it, the outputs that are to agree. The model returns nothing else.
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
