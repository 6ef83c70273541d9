"""Rules accept dimensions as ints, lists and tuples, negative or missing, with equal results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import Graph, Node
from torch.fx.immutable_collections import immutable_list

from lowtide.frameworks.torch.internals.operators import schema_arguments
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.image_rules import NETWORK_RULES
from lowtide.frameworks.torch.rewrites.chunks.op_rules import RULES, chunked_op
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.chunks.rule import ChunkedOp, ProductRows, RowRole, SlicedRows, normalize_dims
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from tests.frameworks.torch.rewrites.examples import trace

aten = torch.ops.aten
ROWS = ProductRows(6)
SLICED = SlicedRows(4, ProductRows(6), length=3, start=1, stop=3)
SHAPES = ((6, 4), (6, 4, 5), (2, 3, 4), (2, 3, 2, 5), (12, 3), (6,), (4, 5), (0, 3))
"""Shapes with six rows, shapes without rows, and one without elements."""
DIM_NAMES = ("dim", "dims", "dim0", "dim1")
Arguments = Callable[[Any, Any, list[int], Any], tuple[Any, ...]]
"""Arguments from an operand, an index of its shape, its shape, and dimensions."""


def plain(*more: Any) -> Arguments:
    """Return arguments of an op that takes an operand and dimensions."""
    return lambda x, index, shape, dims: (x, dims, *more)


ONE: dict[Any, Arguments] = {
    aten.argmax.default: plain(),
    aten.argmin.default: plain(),
    aten.any.dim: plain(),
    aten.all.dim: plain(),
    aten.max.dim: plain(),
    aten.min.dim: plain(),
    aten._softmax.default: plain(False),
    aten._log_softmax.default: plain(False),
    aten.squeeze.dim: plain(),
    aten.topk.default: lambda x, index, shape, dim: (x, 1, dim),
    aten._softmax_backward_data.default: lambda x, index, shape, dim: (x, x, dim, torch.float32),
    aten._log_softmax_backward_data.default: lambda x, index, shape, dim: (x, x, dim, torch.float32),
    aten.cat.default: lambda x, index, shape, dim: ([x, x], dim),
    aten.gather.default: lambda x, index, shape, dim: (x, dim, index),
    aten.scatter.src: lambda x, index, shape, dim: (x, dim, index, x),
    aten.scatter_add.default: lambda x, index, shape, dim: (x, dim, index, x),
    aten.slice.Tensor: plain(1, 3),
    aten.slice_backward.default: lambda x, index, shape, dim: (x, shape, dim, 0, 100, 1),
    aten.unsqueeze.default: plain(),
    aten.split.Tensor: lambda x, index, shape, dim: (x, 2, dim),
}
"""Ops along one dimension."""
SEVERAL: dict[Any, Arguments] = {
    aten.mean.dim: plain(),
    aten.amax.default: plain(True),
    aten.amin.default: plain(),
    aten.logsumexp.default: plain(),
    aten.any.dims: plain(),
    aten.all.dims: plain(),
    aten.squeeze.dims: plain(),
    aten.sum.dim_IntList: plain(),
}
"""Ops along any number of dimensions."""
ALL: dict[Any, Arguments] = {
    aten.permute.default: plain(),
    aten.transpose.int: lambda x, index, shape, dims: (x, dims[0], dims[-1]),
}
"""Ops on all dimensions or on two."""
CALLS = {**ONE, **SEVERAL, **ALL}


def call(target: Any, x: torch.Tensor, dims: Any) -> tuple[Graph, dict[int, Node], Any]:
    """Return a graph with the operands of a call, a map from values to nodes, and the value of the call."""
    index = torch.zeros(x.shape, dtype=torch.int64)
    graph, nodes = Graph(), dict[int, Node]()
    for value in (x, index):
        nodes[id(value)] = graph.placeholder("x")
        nodes[id(value)].meta["val"] = value
    return graph, nodes, (index, target(*CALLS[target](x, index, list(x.shape), dims)))


def op_of(target: Any, x: torch.Tensor, known: Any, rows: ProductRows, dims: Any, missing: int | None = None) -> Any:
    """Return the chunked op of a call with some dimensions, or without its argument at `missing`."""
    graph, nodes, (index, value) = known
    source = nodes[id(x)]
    args = CALLS[target](source, nodes[id(index)], list(x.shape), dims)
    names = [argument.name for argument in schema_arguments(target)]
    end = len(args) if missing is None else missing
    node = graph.call_function(target, args[:end], dict(zip(names[end + 1 :], args[end + 1 :], strict=False)))
    node.meta["val"] = value
    return chunked_op(node, {source: ChunkedOp(RowRole.ROWS, rows=rows)}, rows, x.device, images=True)


@given(st.data())
def test_every_way_to_write_dimensions_gives_the_same_chunked_op(data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(list(CALLS)))
    x = torch.ones(data.draw(st.sampled_from(SHAPES)))
    rows = data.draw(st.sampled_from((ROWS, SLICED)))
    rank = x.dim() + (target is aten.unsqueeze.default)
    order = data.draw(st.permutations(range(rank)))
    dims = order if target in ALL else order[: data.draw(st.integers(1, rank)) if target in SEVERAL else 1]
    canonical = dims[0] if target in ONE else dims
    try:
        known = call(target, x, canonical)
    except (RuntimeError, IndexError):  # the op refuses the shape, such as a maximum of no elements
        return
    wanted = op_of(target, x, known, rows, canonical)
    written = [dim - rank * data.draw(st.booleans()) for dim in dims]
    for container in (list, tuple, immutable_list):
        assert op_of(target, x, known, rows, container(written)) == wanted
    if len(dims) == 1 and target not in ALL:
        assert op_of(target, x, known, rows, written[0]) == wanted


@given(st.sampled_from([*ONE, *SEVERAL, aten.permute.default]), st.sampled_from(SHAPES))
def test_missing_and_unusable_dimensions_are_no_error(target: Any, shape: tuple[int, ...]) -> None:
    """A missing argument has its default. Names and dimensions out of range have no chunked op."""
    x = torch.ones(shape)
    try:
        known = call(target, x, 0 if target in ONE else list(range(len(shape))))
    except (RuntimeError, IndexError):
        return
    names = [argument.name for argument in schema_arguments(target)]
    place = next(at for at, name in enumerate(names) if name in DIM_NAMES)
    for dims in ([], (), None, "N", ["N"], [len(shape) + 7], [None]):
        assert op_of(target, x, known, ROWS, dims) is None
    missing = op_of(target, x, known, ROWS, 0, place)
    default = schema_arguments(target)[place].default_value
    assert missing == op_of(target, x, known, ROWS, default)


def test_every_rule_that_reads_dimensions_is_tested_here() -> None:
    tested = {target._opname for target in CALLS}
    for name in (*RULES, *NETWORK_RULES):
        packet = getattr(aten, name, None)  # pooling does not have all numbers of dimensions
        overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
        arguments = {argument.name for overload in overloads for argument in schema_arguments(overload)}
        is_tested = name in tested or name == "split_with_sizes"  # by the rule of `split`
        assert is_tested or not arguments.intersection(DIM_NAMES)


@pytest.mark.parametrize(
    ("dims", "wanted"),
    [(1, (1,)), (-1, (2,)), ([0, -1], (0, 2)), ((-3, 1), (0, 1)), (None, None), ([], None), (3, None), ("N", None)],
)
def test_dimensions_become_non_negative(dims: Any, wanted: Any) -> None:
    assert normalize_dims(dims, 3) == wanted


def test_lists_and_negative_dimensions_in_a_region_are_no_error() -> None:
    """Such as the dimensions of `squeeze`."""

    def step(x: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = x @ head
        weights = logits[:, None, :, None].squeeze((1, -1)).softmax(-1)
        columns = aten.sum.dim_IntList(weights, [-2])
        return weights.logsumexp((-1,)), weights.amax([1]), columns, weights.t() @ x

    found, refused = find_product_regions(trace(step, torch.randn(512, 16), torch.randn(16, 1024)).graph)
    assert not refused
    assert RowRole.COLUMN_SUM in {op.role for op in found[0].ops.values()}
    for sizes in (ChunkSizes(128), ChunkSizes(300)):
        assert Trials(exact=False).first_equal(found[0], [sizes]) == sizes
