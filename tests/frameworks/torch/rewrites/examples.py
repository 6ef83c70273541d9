"""One example program for each rewrite, with places to rewrite and places to leave unchanged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.aot_autograd import merge_common_subexpressions
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.outlined import register_program
from lowtide.frameworks.torch.rewrites.boundary import InsertBoundary
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import ChunkedModule, Chunking, chunk_module
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkProducts, ChunkSizes, RecomputeRows
from lowtide.frameworks.torch.rewrites.chunks.early_gradients import EarlyGradients
from lowtide.frameworks.torch.rewrites.chunks.losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.chunks.updates import ChunkUpdates, find_update_regions
from lowtide.frameworks.torch.rewrites.chunks.windows import Windows
from lowtide.frameworks.torch.rewrites.fuse_chunk_ops import FuseChunkOps
from lowtide.frameworks.torch.rewrites.out_of_place import WriteOutOfPlace
from lowtide.frameworks.torch.rewrites.outline_chunks import OutlineChunks
from lowtide.frameworks.torch.rewrites.overwritten_inputs import SaveOldContents
from lowtide.frameworks.torch.rewrites.rewrite import MADE_BY, Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.saved_values import (
    SaveInputsFlat,
    SaveMasksAsBytes,
    TakeInputsFlat,
    TakeMasksAsBytes,
)
from lowtide.frameworks.torch.rewrites.table import REWRITES

aten = torch.ops.aten


@dataclass(frozen=True)
class Example:
    """A rewrite and a program. Placeholders have the names of the function's parameters, with the suffix `_1`."""

    rewrite: Rewrite[Any]
    module: GraphModule
    given: dict[str, torch.Tensor]
    """The inputs, by placeholder."""
    differ: frozenset[int] = field(default_factory=frozenset[int])
    """Positions of outputs that are equal up to rounding only."""


def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    """Trace a function, including in-place ops."""
    return make_fx(function, tracing_mode="fake")(*inputs)


def example(name: str) -> Example:
    """Return the example of a rewrite, built from the same random numbers each time."""
    torch.manual_seed(0)
    return _EXAMPLES[name]()


def _of(rewrite: Rewrite[Any], module: GraphModule, inputs: Sequence[torch.Tensor], **more: Any) -> Example:
    names = [str(node.target) for node in module.graph.find_nodes(op="placeholder")]
    return Example(rewrite, module, dict(zip(names, inputs, strict=True)), **more)


def _plain(name: str, function: Callable[..., Any], *inputs: torch.Tensor) -> Example:
    return _of(REWRITES[name](), trace(function, *inputs), inputs)


def _split_foreach() -> Example:
    def update(p: Any, q: Any, g: Any, h: Any) -> Any:
        scaled = torch._foreach_mul([g, h], 0.5)
        torch._foreach_add_([p, q], scaled, alpha=-0.1)
        settings = {"weight_decay": 0.1, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
        torch._fused_sgd_([p, q], [g, h], [], **settings, maximize=False, is_first_step=False)
        return scaled[1].view(-1), torch._foreach_neg([p])[0]

    shapes = ((4, 3), (5,), (4, 3), (5,))
    return _plain("split-foreach", update, *(torch.randn(shape) for shape in shapes))


def _canonicalize() -> Example:
    def make(x: Any) -> Any:
        zeros = torch.zeros_like(x)
        zeros.view(-1).add_(1)
        return (
            zeros,
            torch.ones_like(x.t()),
            x.new_full((2,), 7),
            torch.full_like(x, 3).mul(torch.empty_like(x).zero_()),
            aten.copy(x[1:3], torch.ones(1, dtype=torch.float64)),
            aten.copy(x[1:3], torch.ones_like(x[:1])),
        )

    return _plain("canonicalize", make, torch.randn(4, 3))


def _batch_norm() -> Example:
    def train(x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        out, *saved = aten.native_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)
        known = aten.native_batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5)[0]
        grads = aten.native_batch_norm_backward(out, x, weight, mean, var, *saved, True, 1e-5, [True] * 3)
        return out.view(-1), known, *grads

    return _plain("split-batch-norm", train, torch.randn(4, 3, 2), *(torch.rand(3) + 0.5 for _ in range(4)))


def _out_of_place() -> Example:
    def step(x: Any, state: Any) -> Any:
        y = x * 2
        y.relu_()
        y.add_(1)
        seen = y.view(-1)
        kept = x.exp()
        alias = kept.view(-1)
        kept.mul_(3)
        loss = (seen.sum() + alias.sum()).neg()
        state.add_(loss)
        return loss

    module = trace(step, *(inputs := (torch.randn(4, 3), torch.zeros(()))))
    (last,) = module.graph.find_nodes(op="call_function", target=aten.neg.default)
    return _of(WriteOutOfPlace(last.name), module, inputs)


def _in_chunks() -> Example:
    def update(p: Any, momentum: Any, left: Any, right: Any, tokens: Any, rows: Any) -> Any:
        gradient = torch.mm(left, right) + aten.embedding_dense_backward(rows, tokens, p.shape[0], 3, False)
        momentum.mul_(0.9).add_(gradient)
        p.add_(momentum * -0.1)
        return p[:2].clone()

    tokens = torch.randint(0, 700, (5,))
    inputs = (torch.randn(700, 512), torch.randn(700, 512), torch.randn(700, 2), torch.randn(2, 512), tokens)
    module = trace(update, *(given := (*inputs, torch.randn(5, 512))))
    (region,) = find_update_regions(module.graph)
    return _of(ChunkUpdates(((region, 400),)), module, given)


def _loss_gradient() -> Example:
    """One of four losses is small, and the logarithms of another are read later."""

    def losses(large: Any, small: Any, wanted: Any, given: Any) -> Any:
        results: list[Any] = []
        for logits, reduction in ((large * 2, 1), (large * 3, 0), (small, 1), (large * 4, 1)):
            logarithms = aten._log_softmax(logits, 1, False)
            loss, total = aten.nll_loss_forward(logarithms, wanted, None, reduction, 1)
            incoming = given if reduction == 0 else given[0]
            gradient = aten.nll_loss_backward(incoming, logarithms, wanted, None, reduction, 1, total)
            results += [loss, aten._log_softmax_backward_data(gradient, logarithms, 1, torch.float32) * 2]
        return *results, logarithms.exp()

    wanted = torch.randint(0, 10, (37,))
    return _plain("loss-gradient-by-rows", losses, torch.randn(37, 8000), torch.randn(37, 10), wanted, torch.randn(37))


def _losses_of_rows() -> Example:
    """One of five losses is small, and one is not reduced."""

    def losses(large: Any, small: Any, wanted: Any, weight: Any) -> Any:
        kinds = ((large, None, 1), (large, weight, 1), (large, weight, 2), (large, weight, 0), (small, None, 1))
        return [loss for x, w, kind in kinds for loss in aten.nll_loss_forward(x, wanted, w, kind, 1)[: 1 + bool(kind)]]

    wanted = torch.randint(0, 10, (37,))
    return _plain("losses-of-rows", losses, torch.randn(37, 8000), torch.randn(37, 10), wanted, torch.rand(8000))


def _losses_of_pixels() -> Example:
    """One of four losses is not reduced. Some pixels are ignored."""

    def losses(pixels: Any, wanted: Any, weight: Any) -> Any:
        kinds = ((None, 1), (weight, 1), (weight, 2), (weight, 0))
        return [loss for w, kind in kinds for loss in aten.nll_loss2d_forward(pixels, wanted, w, kind, 1)]

    inputs = (torch.randn(3, 5, 8, 8).log_softmax(1), torch.randint(0, 5, (3, 8, 8)), torch.rand(5))
    return _of(REWRITES["losses-of-pixels"](), trace(losses, *inputs), inputs, differ=frozenset(range(6)))


def _mean_losses() -> Example:
    """One of five gradients is that of a sum, and one has no reduction."""

    def gradients(given: Any, x: Any, y: Any, elements: Any) -> Any:
        of_mean = aten.mse_loss_backward(given, x, y, 1), aten.huber_loss_backward(given, x, y, 1, 0.5)
        smooth = aten.smooth_l1_loss_backward(given, x, y, 1, 0.5)
        entropy = aten.binary_cross_entropy_backward(given, x.sigmoid(), y.sigmoid())
        return (
            *of_mean,
            smooth,
            entropy,
            aten.mse_loss_backward(given, x, y, 2),
            aten.mse_loss_backward(elements, x, y, 0),
        )

    inputs = (torch.tensor(1.5), torch.randn(3, 7), torch.randn(3, 7), torch.randn(3, 7))
    return _of(REWRITES["mean-losses"](), trace(gradients, *inputs), inputs, differ=frozenset(range(4)))


def _rows_again() -> Example:
    """The last result needs the mean over all rows of a softmax, and the softmax."""

    def weigh(x: Any, w: Any) -> Any:
        weights = torch.softmax(torch.mm(x, w), 1)
        loss = weights.amax(1).mean()
        return loss, (weights * loss).sum(1)

    module = trace(weigh, *(inputs := (torch.randn(96, 8), torch.randn(8, 4100))))
    (_, (refusal,)) = find_product_regions(module.graph)
    assert refusal.two_passes is not None
    return _of(RecomputeRows((refusal.two_passes,)), module, inputs)


def _early_gradients() -> Example:
    """A loss over many classes, and its gradients in a backward pass with a tangent."""

    def joint(x: Any, w: Any, wanted: Any, tangents: Any) -> Any:
        logarithms = aten._log_softmax(x.mm(w), 1, False)
        loss, total = aten.nll_loss_forward(logarithms, wanted, None, 1, -100)
        of_loss = aten.nll_loss_backward(tangents, logarithms, wanted, None, 1, -100, total)
        of_logits = aten._log_softmax_backward_data(of_loss, logarithms, 1, torch.float32)
        return loss, of_logits.mm(w.t()), x.t().mm(of_logits).neg()

    inputs = (torch.randn(96, 64), torch.randn(64, 4100), torch.randint(0, 4100, (96,)), torch.tensor(0.3))
    module = run_rewrites(trace(joint, *inputs), [LossesOfRows(min_bytes=0), InsertBoundary(1)])
    names = ("x_1", "w_1", "wanted_1", "tangents_1")
    given = dict(zip(names, inputs, strict=True))
    return Example(EarlyGradients(any_order=True), module, given, differ=frozenset((1, 2)))


def _products_by_rows() -> Example:
    """One of three products is small, and the softmax of another mixes rows."""

    def heads(x: Any, w: Any, small: Any, wanted: Any, total: Any) -> Any:
        logits = torch.mm(x, w.t())
        logarithms = aten._log_softmax(logits.tanh().view(8, 12, -1).view(96, -1), 1, False)
        losses = aten.nll_loss_forward(logarithms, wanted, None, 0, 1)[0]
        gradient = aten.nll_loss_backward(torch.ones(()), logarithms, wanted, None, 1, 1, total)
        back = aten.tanh_backward(
            aten._log_softmax_backward_data(gradient, logarithms, 1, torch.float32), logits.tanh()
        )
        mixed = torch.softmax(torch.mm(x, w.t() * 2), 0).sum(1)
        return losses.mean(), torch.mm(back.t(), x), torch.mm(back, w), torch.mm(x, small).exp(), mixed

    inputs = (torch.randn(96, 64), torch.randn(4100, 64), torch.randn(64, 70), torch.randint(0, 9, (96,)))
    module = trace(heads, *(given := (*inputs, torch.tensor(90.0))))
    ((region,), _) = find_product_regions(module.graph)
    return _of(ChunkProducts(((region, ChunkSizes(24, Windows(1024))),)), module, given)


def chunked(captured: Captured, chunking: Chunking | None = None) -> ChunkedModule:
    """Return a captured program in chunks."""
    return chunk_module(captured.graph_module, captured.inputs, chunking or Chunking())


def lifetimes(module: GraphModule) -> list[tuple[str, Lifetime]]:
    """Return the names and lifetimes of all inputs of an example."""
    return [(node.name, Lifetime.INPUT) for node in module.graph.find_nodes(op="placeholder")]


def _outlined() -> Example:
    """The second chunk does not depend on the first. Rows of the state are overwritten, and all results are read."""
    marked = (aten.empty, aten.slice, aten.mm, aten.sum, aten.copy_, aten.add_)

    def in_chunks(x: Any, w: Any, state: Any) -> Any:
        scaled = x * 2
        room = aten.empty.memory_format([4], dtype=x.dtype, device=x.device)
        for first in (0, 2):
            product = scaled[first : first + 2].mm(w)
            aten.copy_.default(room[first : first + 2], product.sum(1))
            aten.add_.Tensor(state[first : first + 2], product)
            scaled = scaled.view(4, 3)
        return room.view(2, 2), room.exp(), state.neg(), product.t()

    inputs = (torch.randn(4, 3), torch.randn(3, 2), torch.randn(4, 2))
    module = trace(in_chunks, *inputs)
    for node in module.graph.nodes:
        if getattr(node.target, "overloadpacket", None) in marked:
            node.meta[MADE_BY] = ChunkProducts.name
    return _of(OutlineChunks(_held), module, inputs)


def _held(module: GraphModule) -> str:
    return register_program(module, scratch_bytes=0, work=())


def _fused_chunks() -> Example:
    """A wide mask made before the product that it scales, copied rows, and a state that is overwritten."""

    def in_chunks(x: Any, w: Any, state: Any) -> Any:
        room = aten.empty.memory_format([4, 1], dtype=x.dtype, device=x.device)
        results: list[Any] = []
        for first in (0, 2):
            rows = x[first : first + 2]
            mask = torch.where(rows[:, :1].expand(2, 2) > 0, 1.0, -1.0) * 2
            product = rows.mm(w)
            largest = product.amax(1, keepdim=True)
            aten.copy_.default(room[first : first + 2], largest)
            scaled = (product - largest).exp() * mask + state
            state.addmm_(scaled.t(), scaled)
            results += [scaled.view(4, 1), state.sum(0)]
        return room, *results

    inputs = (torch.randn(4, 3), torch.randn(3, 2), torch.ones(2, 2))
    return _of(FuseChunkOps(_held), trace(in_chunks, *inputs), inputs)


def _dead_code() -> Example:
    def compute(x: Any, state: Any) -> Any:
        x.exp().sin()
        state.add_(1)
        return x.cos()

    return _plain("drop-dead-code", compute, torch.randn(3), torch.zeros(3))


def _twice(x: Any) -> Any:
    first, second = x.exp(), x.exp()
    return first.sum() * second.view(-1), torch.bernoulli(x.sigmoid()) + torch.bernoulli(x.sigmoid())


def _stale_views() -> Example:
    """PyTorch merges two ops without updating the view."""
    module = trace(_twice, x := torch.randn(2, 3))
    merge_common_subexpressions(module)
    return _of(REWRITES["follow-views"](), module, [x])


def _dropout() -> Example:
    def drop(x: Any) -> Any:
        out, mask = aten.native_dropout(x, 0.3, True)
        return out.view(-1), mask.t(), aten.native_dropout(x, 1.0, True)[0]

    return _plain("split-dropout", drop, torch.randn(4, 3))


def _joint(x: Any, w: Any, tangents: Any) -> Any:
    """Forward and backward pass of a dropout and a product."""
    hidden = x.exp()
    kept, mask = aten.native_dropout(hidden, 0.5, True)
    product = kept.mm(w)
    given = tangents.sin() * product
    return product, hidden.t().mm(given), (given.mm(w.t()) * mask).neg(), tangents.view(-1)


def _joint_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 3), torch.randn(3, 2), torch.randn(4, 2)]


def _boundary() -> Example:
    inputs = _joint_inputs()
    return _of(InsertBoundary(1), trace(_joint, *inputs), inputs)


def _snapshots() -> Example:
    def norm(x: Any, mean: Any, large: Any) -> Any:
        centered = x - mean.view(1, -1)
        moved = large.sum(0)
        mean.add_(moved)
        large.zero_()
        return centered, mean * 2

    inputs = (torch.randn(4, 3), torch.randn(3), torch.randn(1 << 17, 3))
    return _plain("snapshot-overwritten-inputs", norm, *inputs)


def _checkpointed() -> Example:
    """Recompute the ops of the first checkpoint, except the draw and the result that the second reads."""
    inputs = _joint_inputs()
    module = run_rewrites(trace(_joint, *inputs), [InsertBoundary(1)])
    for node in module.graph.nodes:
        if node.target in (aten.exp.default, aten.native_dropout.default, aten.t.default):
            node.meta |= {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 1}
    names = ("x_1", "w_1", "tangents_1")
    return Example(REWRITES["repeat-checkpointed"](), module, dict(zip(names, inputs, strict=True)))


def _old_contents() -> Example:
    def forward(x: Any, state: Any) -> Any:
        saved = state.view(-1)
        out = x * 2
        state.add_(1)
        return out, x, saved, state

    inputs = (torch.randn(3), torch.randn(3, 1))
    return _of(SaveOldContents(1), trace(forward, *inputs), inputs, differ=frozenset((2, 3)))


def _early_values() -> Example:
    def chain(x: Any, w: Any) -> Any:
        wide = x.mm(w)
        small = wide.sin().sum(1)
        mask = wide > 0
        other = small.reshape(1, -1).mm(x)
        late = x.mm(w)
        return other.cos().exp(), mask * late.tanh()

    return _plain("store-early-values", chain, torch.randn(4, 4), torch.randn(4, 64))


def _concatenated() -> Example:
    def join(x: Any, w: Any) -> Any:
        early, late = x.sin(), x.mm(w)
        joined = torch.cat([early, late.cos(), x, w.t()])
        kept = (joined + 1).exp().sum(1)
        both = torch.cat([late.tanh(), kept.expand(4, 16).sum(1).expand(4, 4)])
        return joined.sum(), both, late.exp()

    return _plain("copy-into-concatenations", join, torch.randn(4, 4), torch.randn(4, 4))


def _convolve(x: Any, w: Any) -> Any:
    return aten.convolution(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), x, w.sum(), w


def _saved_flat() -> Example:
    inputs = (torch.randn(2, 3, 4, 4), torch.randn(5, 3, 2, 2))
    return _of(SaveInputsFlat(1), trace(_convolve, *inputs), inputs)


def _taken_flat() -> Example:
    inputs = (torch.randn(2, 3, 4, 4), torch.randn(5, 3, 2, 2))
    return _of(TakeInputsFlat(("w_1",)), trace(lambda x, w: _convolve(x, w)[0], *inputs), inputs)


def _masked(x: Any) -> Any:
    kept, counted, returned = x > 0, x > 1, x < 2
    convert = torch.ops.prims.convert_element_type.default
    again = convert(convert(convert(x > 3, torch.float32), torch.uint8), torch.float32) != 0
    both = kept.logical_and(counted)
    return torch.where(returned, x, 0.0), returned, both, kept, counted, counted.sum(), returned, again


def _saved_masks() -> Example:
    inputs = (torch.randn(4, 6),)
    module = trace(_masked, *inputs)
    return _of(SaveMasksAsBytes(2, tuple(node.name for node in module.graph.nodes)), module, inputs)


def _taken_masks() -> Example:
    inputs = (torch.randn(4, 6), torch.randn(4, 6) > 0, torch.randn(6, 4) > 0)
    return _of(
        TakeMasksAsBytes(("kept_1", "counted_1")),
        trace(lambda x, kept, counted: (torch.where(kept, x, 0.0), counted.sum(), counted.logical_not()), *inputs),
        inputs,
    )


_EXAMPLES: dict[str, Callable[[], Example]] = {
    "split-foreach": _split_foreach,
    "canonicalize": _canonicalize,
    "split-batch-norm": _batch_norm,
    "write-out-of-place": _out_of_place,
    "loss-gradient-by-rows": _loss_gradient,
    "losses-of-rows": _losses_of_rows,
    "losses-of-pixels": _losses_of_pixels,
    "mean-losses": _mean_losses,
    "early-gradients": _early_gradients,
    "rows-again": _rows_again,
    "products-by-rows": _products_by_rows,
    "in-chunks": _in_chunks,
    "outline-chunks": _outlined,
    "fuse-chunk-ops": _fused_chunks,
    "drop-dead-code": _dead_code,
    "merge-common-subexpressions": lambda: _plain("merge-common-subexpressions", _twice, torch.randn(2, 3)),
    "split-dropout": _dropout,
    "insert-boundary": _boundary,
    "snapshot-overwritten-inputs": _snapshots,
    "follow-views": _stale_views,
    "repeat-checkpointed": _checkpointed,
    "save-old-contents": _old_contents,
    "store-early-values": _early_values,
    "copy-into-concatenations": _concatenated,
    "save-inputs-flat": _saved_flat,
    "take-inputs-flat": _taken_flat,
    "save-masks-as-bytes": _saved_masks,
    "take-masks-as-bytes": _taken_masks,
}
