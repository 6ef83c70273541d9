"""A program with its largest products, updates and loss gradient in chunks, and a name that says what is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch.fx import GraphModule

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes, ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.choose_chunks import choose_chunks, choose_rows
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices, can_run
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.chunks.loss_gradient import LossGradientByRows
from lowtide.frameworks.torch.rewrites.chunks.mean_losses import MeanLosses
from lowtide.frameworks.torch.rewrites.chunks.pixel_losses import LossesOfPixels
from lowtide.frameworks.torch.rewrites.chunks.products import PRODUCTS, ProductRegion, Refusal, TwoPasses
from lowtide.frameworks.torch.rewrites.chunks.row_losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.rows_again import RowsAgain
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from lowtide.frameworks.torch.rewrites.out_of_place import WriteOutOfPlace
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites

Inputs = Sequence[tuple[str, Lifetime]]
"""The inputs of a program by name, and how long each lives."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """What is asked of a program in chunks."""

    trials: Trials = field(default_factory=Trials)
    """Which chunks gave equal results, and whether all bits must be equal."""
    fused: bool = False
    """Whether kernels are fused, so that what is done element by element needs no chunks for itself."""
    allowed: int = 0
    """The bytes that the program may need, 0 for as few as may be."""

    def to_rounding(self) -> "Chunking":
        """Return what is asked where results need be equal to rounding alone."""
        return replace(self, trials=Trials(exact=False, devices=ChunkDevices.ALL, adds=True))

    @classmethod
    def for_fusion(cls) -> "Chunking":
        """Return what is asked of a program that is compiled, whose results are equal to rounding as it is.

        On the CPU alone, since nobody has tried elsewhere how code that calls chunks fits Inductor's own.
        """
        return cls(Trials(exact=False), fused=True)


@dataclass(frozen=True, slots=True)
class SplitModule:
    """A program in chunks, what is done in them, and what is not."""

    module: GraphModule | None
    """The program with equal bits, or equal to rounding where that is enough; None where no chunks are worth it."""
    done: tuple[str, ...]
    """What is done in how many chunks."""
    left_whole: tuple[str, ...]
    """Large products that are computed as a whole, and why, a sentence each."""
    untried: tuple[str, ...]
    """Devices that are not here, so that their chunks were not run beside the whole, a sentence each."""


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A captured program in chunks, and what of it is not."""

    captured: Captured | None
    """The program with equal bits, or equal to rounding where that is enough; None where no chunks are worth it."""
    left_whole: tuple[str, ...]
    """Large products that are computed as a whole, and why, a sentence each."""


@dataclass(frozen=True, slots=True)
class _ByRows:
    """A program before its products are cut, and how each is to be."""

    module: GraphModule
    rows: Mapping[ProductRegion, ChunkSizes]
    refused: Sequence[Refusal]

    @property
    def left_whole(self) -> tuple[str, ...]:
        """What is refused, and why."""
        return tuple(f"'{each.product.name}' is computed as a whole: {each.reason}" for each in self.refused)

    @property
    def untried(self) -> tuple[str, ...]:
        """What was not run beside the whole."""
        devices = dict.fromkeys(value_of(region.product).device for region in self.rows)
        absent = [device for device in devices if not can_run(device)]
        return tuple(f"chunks were not run beside the whole, since device '{device}' is not here" for device in absent)

    def in_chunks(self) -> GraphModule:
        """Return the program with its products in chunks."""
        return run_rewrites(self.module, [ProductsByRows(tuple(self.rows.items()))])


def split_updates(captured: Captured, chunking: Chunking | None = None) -> SplitProgram:
    """Return a captured program as `split_module` does."""
    return _named(captured, split_module(captured.graph_module, captured.inputs, chunking or Chunking()))


def split_again(captured: Captured, chunking: Chunking | None = None) -> SplitProgram | None:
    """Return a captured program as `split_module_again` does."""
    split = split_module_again(captured.graph_module, captured.inputs, chunking or Chunking())
    return None if split is None else _named(captured, split)


def split_module(module: GraphModule, inputs: Inputs, chunking: Chunking) -> SplitModule:
    """Return a program with its largest products, updates and the gradient of its loss in chunks."""
    return _split(module, inputs, _at_once(module, inputs, chunking), chunking, [])


def split_module_again(module: GraphModule, inputs: Inputs, chunking: Chunking) -> SplitModule | None:
    """Return the same with rows of some products computed twice, so that they can be cut; it takes time.

    None where that is of no use. What is computed again in vain, since its second pass stays whole, is left as it was.
    Chunks are as small as helps, but no smaller than a program takes that may need the bytes that are allowed.
    """
    whole = _at_once(module, inputs, chunking)
    useful: list[TwoPasses] = [refusal.passes for refusal in whole.refused if refusal.passes is not None]
    while useful:
        twice = _by_rows(whole.module, [RowsAgain(tuple(useful))], inputs, chunking)
        done = {node.name for region in twice.rows for node in region.parts}
        kept = [passes for passes in useful if done.issuperset(passes.readers)]
        if len(kept) == len(useful):
            return _split(module, inputs, twice, chunking, ["rows computed twice"])
        useful = kept
    return None


def _at_once(module: GraphModule, inputs: Inputs, chunking: Chunking) -> _ByRows:
    """Return a program in which no row is computed twice, whose chunks need as little as may be.

    Rows are made independent first: no op up to the last product overwrites, no row's gradient waits for all.
    """
    products = [node.name for node in module.graph.nodes if node.target in PRODUCTS]
    losses = LossesOfRows(chunking.trials.devices)
    before: list[Rewrite[Any]] = [*map(WriteOutOfPlace, products[-1:]), losses]
    if chunking.trials.adds:
        before[-1:] = [replace(losses, fewest_bytes=0), LossesOfPixels(), MeanLosses()]
    return _by_rows(module, before, inputs, replace(chunking, allowed=0))


def _by_rows(module: GraphModule, rewrites: Sequence[Rewrite[Any]], inputs: Inputs, chunking: Chunking) -> _ByRows:
    rewritten = run_rewrites(module, rewrites)
    return _ByRows(rewritten, *choose_rows(rewritten, inputs, chunking.trials, chunking.allowed))


def _split(module: GraphModule, inputs: Inputs, by_rows: _ByRows, chunking: Chunking, done: list[str]) -> SplitModule:
    """Return the program in chunks, and what is done in how many."""
    rows = by_rows.rows
    if rows:
        module = by_rows.in_chunks()
        most = max(-(-region.rows.count // sizes.rows) for region, sizes in rows.items())
        done.append(f"{'the largest product' if len(rows) == 1 else f'{len(rows)} products'} in {most} chunks")
    devices = chunking.trials.devices
    loss = LossGradientByRows(devices)
    if not chunking.fused and loss.sites(module):
        module = run_rewrites(module, [loss])
        done.append("the gradient of the loss by rows")
    chosen = choose_chunks(module, inputs, devices, fused=chunking.fused)
    if chosen:
        module = run_rewrites(module, [InChunks(tuple(chosen.items()))])
        most = max(-(-region.shape[0] // rows) for region, rows in chosen.items())
        done.append(f"{'the largest update' if len(chosen) == 1 else f'{len(chosen)} updates'} in {most} chunks")
    return SplitModule(module if done else None, tuple(done), by_rows.left_whole, by_rows.untried)


def _named(captured: Captured, split: SplitModule) -> SplitProgram:
    """Return a captured program in chunks, under a name that says what is done in how many."""
    if split.module is None:
        return SplitProgram(None, split.left_whole)
    name, unmodeled = ", ".join([captured.name, *split.done]), (*captured.unmodeled, *split.left_whole, *split.untried)
    done = replace(captured, name=name, graph_module=split.module, unmodeled=unmodeled)
    return SplitProgram(done, split.left_whole)
