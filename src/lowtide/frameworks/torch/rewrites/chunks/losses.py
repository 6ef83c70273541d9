"""Rewrites of losses and their gradients."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name, schema_arguments
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.product_region import ChunkDevices, bytes_of
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like, copy_module

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
LOSS_GRADIENTS = tuple(f"{loss}_backward" for loss in _LOSSES)
_IGNORED = -100
_MIN_BYTES = 1 << 20
_MAX_CHUNKS = 16
_LOSS = aten.nll_loss_forward.default
_LOSS_BACKWARD = aten.nll_loss_backward.default
_ALIASES = (aten.detach.default, aten.alias.default)
"""`detach` is traced as `alias` since 2.14."""


@dataclass(frozen=True)
class LossesOfRows(Rewrite[Node]):
    """Compute `nll_loss` row by row, and sum the losses.

    Without reduction, the kernel returns zero as the total weight, so its readers get a constant.
    """

    name = "losses-of-rows"
    source = "The kernel sums one number per row, in row order."
    devices: ChunkDevices = ChunkDevices.CPU
    min_bytes: int = _MIN_BYTES

    def sites(self, module: GraphModule) -> Sequence[Node]:
        losses = module.graph.find_nodes(op="call_function", target=_LOSS)
        large = (node for node in losses if self._is_large(node) and (_is_reduced(node) or _total_weights(node)))
        return [node for node in large if self.devices.has(arguments_by_name(node)["self"])]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        return copy_module(module, sites, _append_rows)

    def _is_large(self, node: Node) -> bool:
        logarithms = arguments_by_name(node)["self"]
        value = value_of(logarithms)
        return value.dim() == 2 and not is_symbolic(value) and bytes_of(logarithms) >= self.min_bytes


def _is_reduced(node: Node) -> bool:
    return arguments_by_name(node).get("reduction", MEAN) in (MEAN, SUM)


def _total_weights(node: Node) -> list[Node]:
    return [item for item in node.users if item.args[1] == 1 and item.users]


def _append_rows(graph: Graph, node: Node, made: dict[Node, Node]) -> None:
    if _is_reduced(node):
        results = _summed_rows(graph, node, made)
        made |= {item: results[bool(item.args[1])] for item in node.users}
    else:
        made[node] = graph.node_copy(node, made.__getitem__)
        dtype = value_of(arguments_by_name(node)["self"]).dtype
        zero = call_like(node, graph, aten.full.default, [], 0, dtype=dtype)
        made |= dict.fromkeys(_total_weights(node), zero)


def _summed_rows(graph: Graph, node: Node, made: Mapping[Node, Node]) -> tuple[Node, Node]:
    call = partial(call_like, node, graph)

    def reduce(picked: Node, reduction: int, item: int) -> Node:
        column = call(aten.unsqueeze.default, picked, 1)
        loss = call(_LOSS, column, first, None, reduction, _IGNORED)
        return call(operator.getitem, loss, item)

    given = arguments_by_name(node)
    logarithms, target = made[given["self"]], made[given["target"]]
    weights, reduction = given.get("weight"), given.get("reduction", MEAN)
    ignored = given.get("ignore_index", _IGNORED)
    weight = None if weights is None else made[weights]
    losses = call(_LOSS, logarithms, target, weight, NONE, ignored)
    picked = call(aten.neg.default, call(operator.getitem, losses, 0))
    is_ignored = call(aten.eq.Scalar, target, ignored)
    first = call(aten.where.Scalar, is_ignored, _IGNORED, 0)
    if weight is None:
        ones = call(aten._to_copy.default, target, dtype=value_of(given["self"]).dtype)
        return reduce(picked, reduction, 0), reduce(ones, reduction, 1)
    inside = call(aten.masked_fill.Scalar, target, is_ignored, 0)
    row_weights = call(aten.neg.default, call(aten.index.Tensor, weight, [inside]))
    total = reduce(row_weights, SUM, 0)
    loss = reduce(picked, SUM, 0)
    return call(aten.div.Tensor, loss, total) if reduction == MEAN else loss, total


@dataclass(frozen=True)
class LossesOfPixels(Rewrite[Node]):
    """Compute `nll_loss2d` pixel by pixel, and sum the losses."""

    name = "losses-of-pixels"
    source = "In real numbers the loss is that sum over that weight."
    preserves = Preserves(up_to="the rounding of two sums over pixels")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        losses = module.graph.find_nodes(op="call_function", target=aten.nll_loss2d_forward.default)
        given = ((node, arguments_by_name(node)) for node in losses)
        return [node for node, each in given if each["reduction"] != NONE and not is_symbolic(value_of(each["self"]))]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        return copy_module(module, sites, _append_pixels)


def _append_pixels(graph: Graph, node: Node, made: dict[Node, Node]) -> None:
    call = partial(call_like, node, graph)
    given = arguments_by_name(node)
    dtype = value_of(given["self"]).dtype
    logarithms, target, ignored = made[given["self"]], made[given["target"]], given["ignore_index"]
    weight = None if given["weight"] is None else made[given["weight"]]
    losses = call(operator.getitem, call(aten.nll_loss2d_forward.default, logarithms, target, weight, NONE, ignored), 0)
    is_ignored = call(aten.eq.Scalar, target, ignored)
    if weight is None:
        counted = call(aten._to_copy.default, call(aten.logical_not.default, is_ignored), dtype=dtype)
    else:
        inside = call(aten.masked_fill.Scalar, target, is_ignored, 0)
        counted = call(aten.masked_fill.Scalar, call(aten.index.Tensor, weight, [inside]), is_ignored, 0)
    loss, total = call(aten.sum.default, losses), call(aten.sum.default, counted)
    if given["reduction"] == MEAN:
        loss = call(aten.div.Tensor, loss, total)
    made |= {item: total if item.args[1] else loss for item in node.users}


@dataclass(frozen=True)
class MeanLosses(Rewrite[Node]):
    """Compute the gradient of a mean as that of a sum, with the incoming gradient divided by the count."""

    name = "mean-losses"
    source = "In real numbers a mean is a sum over a count."
    preserves = Preserves(up_to="the rounding of one product per element")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [node for node in module.graph.nodes if _is_of_mean(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        return copy_module(module, sites, _append_gradient_of_sum)


def _append_gradient_of_sum(graph: Graph, node: Node, made: dict[Node, Node]) -> None:
    made[node] = copied = graph.node_copy(node, made.__getitem__)
    given = arguments_by_name(copied)
    count = value_of(arguments_by_name(node)["self"]).numel()
    with graph.inserting_before(copied):
        given["grad_output"] = call_like(node, graph, aten.div.Tensor, given["grad_output"], count)
    given["reduction"] = SUM
    arguments = schema_arguments(node.target)
    copied.args, copied.kwargs = tuple(given.get(each.name, each.default_value) for each in arguments), {}


def _is_of_mean(node: Node) -> bool:
    if op_name(node.target) not in LOSS_GRADIENTS:
        return False
    return arguments_by_name(node).get("reduction", MEAN) == MEAN and not is_symbolic(value_of(node))


@dataclass(frozen=True, slots=True, eq=False)
class LossGradient:
    """A `log_softmax`, the gradient of its loss, and its own gradient."""

    logarithms: Node
    of_loss: Node
    node: Node


@dataclass(frozen=True)
class LossGradientByRows(Rewrite[LossGradient]):
    """Compute the gradient of `cross_entropy` by chunks, in the storage of `log_softmax`."""

    name = "loss-gradient-by-rows"
    source = "Both gradients treat each row independently; a test compares bits."
    devices: ChunkDevices = ChunkDevices.CPU

    def sites(self, module: GraphModule) -> Sequence[LossGradient]:
        order = {node: place for place, node in enumerate(module.graph.nodes)}
        nodes = module.graph.find_nodes(op="call_function", target=aten._log_softmax_backward_data.default)
        sites = [site for site in map(_site, nodes) if site is not None and _can_overwrite(site, order)]
        return [site for site in sites if self.devices.has(site.logarithms)]

    def apply(self, module: GraphModule, sites: Sequence[LossGradient]) -> GraphModule:
        site_of = {site.node: site for site in sites}
        left_out = {site.of_loss for site in sites}

        def append(graph: Graph, node: Node, made: dict[Node, Node]) -> None:
            if node in site_of:
                _append_chunks(graph, site_of[node], made)
                made[node] = made[site_of[node].logarithms]

        return copy_module(module, left_out | site_of.keys(), append)


def _site(node: Node) -> LossGradient | None:
    of_loss, logarithms = node.args[:2]
    if not isinstance(of_loss, Node) or of_loss.target is not _LOSS_BACKWARD:
        return None
    source = _undetached(logarithms)
    is_same = source is _undetached(arguments_by_name(of_loss)["self"])
    is_softmax = source.target is aten._log_softmax.default
    return LossGradient(source, of_loss, node) if is_same and is_softmax else None


def _undetached(node: Any) -> Node:
    while node.target in _ALIASES:
        node = node.args[0]
    return node


def _users(node: Node) -> Iterator[Node]:
    for user in node.users:
        if user.target in _ALIASES:
            yield from _users(user)
        else:
            yield user


def _can_overwrite(site: LossGradient, order: Mapping[Node, int]) -> bool:
    value = value_of(site.logarithms)
    others = set(_users(site.logarithms)) - {site.node, site.of_loss}
    return (
        list(site.of_loss.users) == [site.node]
        and all(user.target is _LOSS and order[user] < order[site.of_loss] for user in others)
        and value.dim() == 2
        and value.shape[0] > 1
        and not is_symbolic(value)
        and value.is_contiguous()
        and value.dtype == value_of(site.node).dtype
        and bytes_of(site.logarithms) >= _MIN_BYTES
    )


def _append_chunks(graph: Graph, site: LossGradient, made: Mapping[Node, Node]) -> None:
    given = arguments_by_name(site.of_loss)
    rows = value_of(site.logarithms).shape[0]
    count = -(-rows // min(rows, _MAX_CHUNKS))
    _, _, dim, dtype = site.node.args

    def rows_of(operand: Node, first: int) -> Node:
        return call_like(operand, graph, aten.slice.Tensor, made[operand], 0, first, min(first + count, rows))

    for first in range(0, rows, count):
        chunk = rows_of(site.logarithms, first)
        operands = {name: made[value] if isinstance(value, Node) else value for name, value in given.items()}
        operands |= {"self": chunk, "target": rows_of(given["target"], first)}
        if value_of(given["grad_output"]).dim():
            operands["grad_output"] = rows_of(given["grad_output"], first)
        gradient = call_like(site.of_loss, graph, _LOSS_BACKWARD, *operands.values())
        into = aten._log_softmax_backward_data.out
        call_like(site.node, graph, into, gradient, chunk, dim, dtype, out=chunk)
