"""Programs with their largest products, loss gradient and updates in chunks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch.fx import Graph, GraphModule

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.nodes import graph_module, value_of
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_product_chunks, choose_update_chunks
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkProducts, ChunkSizes, RecomputeRows
from lowtide.frameworks.torch.rewrites.chunks.early_gradients import EarlyGradients
from lowtide.frameworks.torch.rewrites.chunks.losses import LossesOfPixels, LossesOfRows, LossGradientByRows, MeanLosses
from lowtide.frameworks.torch.rewrites.chunks.product_region import (
    PRODUCTS,
    ChunkDevices,
    ProductRegion,
    Refusal,
    TwoPasses,
    can_run,
)
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from lowtide.frameworks.torch.rewrites.chunks.updates import ChunkUpdates
from lowtide.frameworks.torch.rewrites.clean_up import DropDeadCode
from lowtide.frameworks.torch.rewrites.out_of_place import WriteOutOfPlace
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites

Fuse = Callable[[GraphModule], str]
"""Compiles element-wise ops and sums of chunks, registers the program, and returns its key."""
Inputs = Sequence[tuple[str, Lifetime]]


@dataclass(frozen=True, slots=True)
class Chunking:
    """Settings of a program in chunks."""

    trials: Trials = field(default_factory=Trials)
    fused: bool = False
    """Element-wise ops then need no chunks."""
    fuse: Fuse | None = None
    budget_bytes: int = 0
    """0 for as little memory as possible."""

    def to_rounding(self) -> "Chunking":
        return replace(self, trials=Trials(exact=False, devices=ChunkDevices.ALL, any_order=True))

    @classmethod
    def for_fusion(cls, fuse: Fuse | None = None) -> "Chunking":
        """Return the settings for a compiled program, equal up to rounding."""
        return cls(Trials(exact=False, devices=ChunkDevices.ALL, only_on_cpu=True), fused=True, fuse=fuse)


@dataclass(frozen=True, slots=True)
class ChunkedModule:
    """A program in chunks."""

    module: GraphModule | None
    """None if chunks are useless."""
    done: tuple[str, ...]
    left_whole: tuple[str, ...]
    untried: tuple[str, ...]

    def captured(self, program: Captured) -> Captured | None:
        if self.module is None:
            return None
        name, unmodeled = ", ".join([program.name, *self.done]), (*program.unmodeled, *self.left_whole, *self.untried)
        return replace(program, name=name, graph_module=self.module, unmodeled=unmodeled)


@dataclass(frozen=True, slots=True)
class _ChosenProducts:
    module: GraphModule
    sizes: Mapping[ProductRegion, ChunkSizes]
    refused: Sequence[Refusal]


def chunk_module(module: GraphModule, inputs: Inputs, chunking: Chunking) -> ChunkedModule:
    """Return a program with its largest products, loss gradient and updates in chunks.

    If rounding is allowed, loss gradients are computed in the forward pass: one pass is then enough.
    """
    early = [] if chunking.trials.exact else [EarlyGradients(chunking.trials.any_order)]
    return _chunked(module, inputs, _in_one_pass(module, inputs, chunking, early), chunking, [])


def chunk_module_in_two_passes(module: GraphModule, inputs: Inputs, chunking: Chunking) -> ChunkedModule | None:
    """Return the same with rows of some products computed twice, or None if useless."""
    one_pass = _in_one_pass(module, inputs, chunking)
    useful: list[TwoPasses] = [refusal.two_passes for refusal in one_pass.refused if refusal.two_passes is not None]
    while useful:
        two_passes = _choose(one_pass.module, [RecomputeRows(tuple(useful))], inputs, chunking)
        in_chunks = {node.name for region in two_passes.sizes for node in region.ops}
        kept = [passes for passes in useful if in_chunks.issuperset(passes.reader_names)]
        if len(kept) == len(useful):
            return _chunked(module, inputs, two_passes, chunking, ["rows computed twice"])
        useful = kept
    return None


def _in_one_pass(
    module: GraphModule, inputs: Inputs, chunking: Chunking, more: Sequence[Rewrite[Any]] = ()
) -> _ChosenProducts:
    """Choose product regions for least memory, without computing rows twice.

    First drops ops without readers, which may mix rows.
    """
    products = [node.name for node in module.graph.nodes if node.target in PRODUCTS]
    losses = LossesOfRows(chunking.trials.devices)
    all_losses = [replace(losses, min_bytes=0), LossesOfPixels(), MeanLosses()]
    before = [
        DropDeadCode(),
        *map(WriteOutOfPlace, products[-1:]),
        *(all_losses if chunking.trials.any_order else [losses]),
        *more,
    ]
    owned = _copy_of(module) if DropDeadCode().sites(module) else module
    return _choose(owned, before, inputs, replace(chunking, budget_bytes=0))


def _copy_of(module: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return graph_module(module, graph)


def _choose(
    module: GraphModule, rewrites: Sequence[Rewrite[Any]], inputs: Inputs, chunking: Chunking
) -> _ChosenProducts:
    rewritten = run_rewrites(module, rewrites)
    chosen = choose_product_chunks(rewritten, inputs, chunking.trials, chunking.budget_bytes)
    return _ChosenProducts(rewritten, *chosen)


def _chunked(
    module: GraphModule, inputs: Inputs, products: _ChosenProducts, chunking: Chunking, done: list[str]
) -> ChunkedModule:
    sizes = products.sizes
    if sizes:
        module = run_rewrites(products.module, [ChunkProducts(tuple(sizes.items()))])
        most = max(-(-region.rows.count // each.rows) for region, each in sizes.items())
        done.append(f"{'the largest product' if len(sizes) == 1 else f'{len(sizes)} products'} in {most} chunks")
    devices = chunking.trials.devices
    loss = LossGradientByRows(devices)
    if not chunking.fused and loss.sites(module):
        module = run_rewrites(module, [loss])
        done.append("the gradient of the loss by rows")
    rows_of = choose_update_chunks(module, inputs, devices, fused=chunking.fused)
    if rows_of:
        module = run_rewrites(module, [ChunkUpdates(tuple(rows_of.items()))])
        most = max(-(-region.shape[0] // rows) for region, rows in rows_of.items())
        done.append(f"{'the largest update' if len(rows_of) == 1 else f'{len(rows_of)} updates'} in {most} chunks")
    whole = tuple(_refusals(products.refused))
    absent = [device for device in {value_of(region.product).device: None for region in sizes} if not can_run(device)]
    untried = (f"results of chunks were not compared: no device '{device}' on this machine" for device in absent)
    return ChunkedModule(module if done else None, tuple(done), whole, tuple(untried))


def _refusals(refused: Sequence[Refusal]) -> Iterator[str]:
    products: dict[str, list[str]] = {}
    for each in refused:
        products.setdefault(each.reason, []).append(each.product.name)
    for reason, (first, *others) in products.items():
        named = f"'{first}' and {len(others)} more are" if others else f"'{first}' is"
        yield f"{named} not in chunks: {reason}"
