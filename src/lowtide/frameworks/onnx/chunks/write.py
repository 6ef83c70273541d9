"""Write regions as Scan nodes between views that cut and join.

Cutting along the first axis is a view, so only returned results are copied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_pieces
from lowtide.frameworks.onnx.chunks.choose import Chosen, Fineness, choose_regions
from lowtide.frameworks.onnx.chunks.region import ChunkedRegion, order_in_one_go
from lowtide.frameworks.onnx.chunks.values import MainValues
from lowtide.frameworks.onnx.loading.external_data import folder_for_copies
from lowtide.frameworks.onnx.loading.load import drained
from lowtide.frameworks.onnx.loading.rewrite import Pieces, renamed, rewritten_model
from lowtide.frameworks.onnx.operators.nodes import NewNames, describe_node, operator_of
from lowtide.frameworks.onnx.operators.tables import VIEWS
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.running.children import equal_in_child
from lowtide.frameworks.wire import Content

_FIRST_SCAN_WITHOUT_BATCH = 9


@dataclass(frozen=True, slots=True)
class WrittenChunks:
    """A chunked model."""

    left_whole: tuple[str, ...]
    """Why regions are not in chunks, a sentence each."""
    path: Path | None = None
    """In a folder that the caller deletes."""
    done: str = ""


def write_in_chunks(
    content: Content, model: ModelProto, translation: Translation, folder: Path | None, fineness: Fineness
) -> WrittenChunks:
    """Write a model of fixed sizes, with the chosen regions that are bit-equal in chunks.

    A child process compares both ways on random inputs. `folder` holds external weights.
    """
    values = MainValues(model, translation)
    chosen = choose_regions(values, fineness) if values.opset >= _FIRST_SCAN_WITHOUT_BATCH else []
    if not chosen:
        return WrittenChunks(())
    own = folder_for_copies(model, folder)
    found = WrittenChunks(())
    try:
        found = _write_equal(content, model, values, chosen, own / "in_chunks.onnx")
    except UnsupportedError as error:
        found = WrittenChunks((f"the whole model: chunks cannot be tried: {error}",))
    finally:
        if found.path is None:
            rmtree(own, ignore_errors=True)
    return found


def _write_equal(
    content: Content, model: ModelProto, values: MainValues, chosen: Sequence[Chosen], path: Path
) -> WrittenChunks:
    equal = _tried(content, model, values, chosen, path.with_name("trial.onnx"))
    left_whole = tuple(
        f"{_name(values, each.region)}: no number of chunks tried gives equal bits"
        for each in chosen
        if each.region not in equal
    )
    if not equal:
        return WrittenChunks(left_whole)
    write_pieces(path, drained(in_chunks(content, model.graph, values, equal)))
    parts = "1 part" if len(equal) == 1 else f"{len(equal)} parts"
    return WrittenChunks(left_whole, path, f"{parts} in up to {max(equal.values())} chunks")


def _tried(
    content: Content, model: ModelProto, values: MainValues, chosen: Sequence[Chosen], path: Path
) -> dict[ChunkedRegion, int]:
    pieces, pairs = _both_ways(content, model.graph, values, chosen)
    write_pieces(path, drained(pieces))
    equal = iter(equal_in_child(path, [pair for of_region in pairs for of_chunks in of_region for pair in of_chunks]))
    path.unlink()
    found: dict[ChunkedRegion, int] = {}
    for each, of_region in zip(chosen, pairs, strict=True):
        for chunks, of_chunks in zip(each.chunks, of_region, strict=True):
            agree = [next(equal) for _ in of_chunks]
            if all(agree):
                found.setdefault(each.region, chunks)
    return found


def _name(values: MainValues, region: ChunkedRegion) -> str:
    neediest = max(region.nodes, key=values.needed)
    return describe_node(values.nodes[neediest], neediest)


_Naming = Callable[[str], str]


def _scan_of(
    values: MainValues, region: ChunkedRegion, chunks: int, new_name: _Naming, results: Sequence[str]
) -> list[NodeProto]:
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
    values: MainValues, region: ChunkedRegion, place: int, chunks: int, inside: dict[str, str], new_name: _Naming
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


def _reshape(source: str, result: str, shape: Sequence[int], new_name: _Naming) -> list[NodeProto]:
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


_Pairs = Sequence[tuple[str, str]]


def in_chunks(content: Content, graph: GraphProto, values: MainValues, chosen: Mapping[ChunkedRegion, int]) -> Pieces:
    names = NewNames(graph)
    nodes: list[int | NodeProto] = []
    for each in order_in_one_go(values, list(chosen)) or ():
        nodes += [each] if isinstance(each, int) else _scan_of(values, each, chosen[each], names.new, each.results)
    inner = {name for region in chosen for name in region.axes.keys() - {*region.sliced, *region.results}}
    return rewritten_model(content, nodes, gone=inner)


def _both_ways(
    content: Content, graph: GraphProto, values: MainValues, chosen: Sequence[Chosen]
) -> tuple[Pieces, list[list[_Pairs]]]:
    names = NewNames(graph)
    nodes: list[int | NodeProto] = list(range(len(graph.node)))
    outputs: dict[str, ValueInfoProto] = {}
    pairs: list[list[_Pairs]] = []
    for each in chosen:
        pairs.append([])
        for chunks in each.chunks:
            results = [names.new(f"{name}/trial") for name in each.region.results]
            nodes += _scan_of(values, each.region, chunks, names.new, results)
            pairs[-1].append(list(zip(each.region.results, results, strict=True)))
            for name, result in pairs[-1][-1]:
                kind, shape = values.element_type(name), values.shape(name)
                outputs |= {one: helper.make_tensor_value_info(one, kind, shape) for one in (name, result)}
    return rewritten_model(content, nodes, outputs=list(outputs.values())), pairs
