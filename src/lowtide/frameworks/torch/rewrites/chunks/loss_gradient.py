"""A rewrite that computes the gradient of a cross entropy by chunks, in the storage of `log_softmax`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.product_region import ChunkDevices, bytes_of
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten
_LOSS = aten.nll_loss_forward.default
_LOSS_BACKWARD = aten.nll_loss_backward.default
_MIN_BYTES = 1 << 20
_MAX_CHUNKS = 16


@dataclass(frozen=True, slots=True, eq=False)
class LossGradient:
    """The ops from a loss back to the operand of its `log_softmax`."""

    logarithms: Node
    of_loss: Node
    """The gradient of the loss, as large as the logits."""
    node: Node
    """The gradient of `log_softmax`."""


@dataclass(frozen=True)
class LossGradientByRows(Rewrite[LossGradient]):
    """Compute the gradient of `cross_entropy` by chunks, in the storage of `log_softmax`.

    The gradient of the loss is as large as the logits, and zero except for one number per row. By chunks, it is as large
    as a chunk.
    """

    name = "loss-gradient-by-rows"
    source = "Both gradients treat each row independently; a test compares the bits of chunks with the whole tensor's."
    devices: ChunkDevices = ChunkDevices.CPU

    def sites(self, module: GraphModule) -> Sequence[LossGradient]:
        """Return the gradients whose operands no later op reads."""
        order = {node: place for place, node in enumerate(module.graph.nodes)}
        nodes = module.graph.find_nodes(op="call_function", target=aten._log_softmax_backward_data.default)
        sites = [site for site in map(_site, nodes) if site is not None and _can_overwrite(site, order)]
        return [site for site in sites if self.devices.has(site.logarithms)]

    def apply(self, module: GraphModule, sites: Sequence[LossGradient]) -> GraphModule:
        """Return a copy with chunks in place of each gradient; its users read the storage of `log_softmax`."""
        site_of = {site.node: site for site in sites}
        left_out = {site.of_loss for site in sites}
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node in site_of:
                _append_chunks(graph, site_of[node], made)
                made[node] = made[site_of[node].logarithms]
            elif node not in left_out:
                made[node] = graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)


def _site(node: Node) -> LossGradient | None:
    of_loss, logarithms = node.args[:2]
    if not isinstance(of_loss, Node) or of_loss.target is not _LOSS_BACKWARD:
        return None
    source = _undetached(logarithms)
    is_same = source is _undetached(arguments_by_name(of_loss)["self"])
    is_softmax = source.target is aten._log_softmax.default
    return LossGradient(source, of_loss, node) if is_same and is_softmax else None


def _undetached(node: Any) -> Node:
    while node.target is aten.detach.default:
        node = node.args[0]
    return node


def _users(node: Node) -> Iterator[Node]:
    """Yield the users of a tensor and of its detached views."""
    for user in node.users:
        if user.target is aten.detach.default:
            yield from _users(user)
        else:
            yield user


def _can_overwrite(site: LossGradient, order: Mapping[Node, int]) -> bool:
    """Return whether the logarithms are large and contiguous, and only the loss and its gradient read them."""
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
