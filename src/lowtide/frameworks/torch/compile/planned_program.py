"""A graph that the compiler is about to compile, planned and written down again in the order of its plan."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from torch.fx import GraphModule

from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import is_part
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.compile.missed_budgets import warn_of_plan
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.plan_program import Share, plan_program
from lowtide.frameworks.torch.compile.program_forms import ProgramForms
from lowtide.frameworks.torch.compile.read_program import ReadProgram, read_program
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import Chunking

_LOG = logging.getLogger("lowtide")
MINOR_BYTES = 4096
"""Graphs of scalars, between two breaks of a program; a percentage is not meant for less."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModule:
    """A program of the compiler, its graph and its plan."""

    name: str
    source: GraphModule
    """The program before planning; its nodes know the user's source lines."""
    graph: Graph
    result: Result
    module: GraphModule
    """The program in the order of the plan."""
    own_peak_bytes: int | None = None
    """The peak on the first device of what PyTorch makes of the program without lowtide, by the same compiler; None
    where that is not known."""
    own_keeps_more: int = 0
    """What PyTorch's program keeps between its passes beyond what the plan does."""
    saved_bytes: list[int] = field(default_factory=list[int])
    """What every tensor has that the forward pass saves, in its order, at the sizes that are planned."""
    kernel_peaks: list[int] = field(default_factory=list[int])
    """Under Inductor, the predicted peak of every pass compiled so far: bytes on the first device after fusion, with
    all that the callers hold. Passes from a cache are missing."""

    @property
    def predicted_peak_bytes(self) -> dict[str, int]:
        """The peak of every memory space: the kernels' where they are known, else the plan's."""
        peaks = dict(self.result.peak_bytes)
        if self.kernel_peaks:
            peaks[self.graph.spaces[0].name] = max(self.kernel_peaks)
        return peaks


def plan_module(
    name: str,
    module: GraphModule,
    held: Collection[int],
    options: Options,
    own: GraphModule | None = None,
    own_peak_bytes: int | None = None,
    share: Share | None = None,
    *,
    in_chunks: Chunking | None = None,
) -> PlannedModule:
    """Plan a functional graph whose inputs at the places `held` outlive it; warns where the budget is not met.

    `own` is what PyTorch makes of the program without lowtide, see `plan_program`. Under Inductor it is known only once
    kernels are fused what that takes, `own_peak_bytes`, and whether a budget is met; so it is planned in chunks only
    where the caller says so. Raises UnsupportedError for what
    cannot be planned, FingerprintError where ranks have different graphs, or the folder of plans has none for this one.
    """
    written = read_program(name, module, held, options)
    without = None if own is None else read_program(name, own, held, options)
    forms = None
    if options.compiler == "eager" or in_chunks is not None:
        forms = ProgramForms(written, held, options, in_chunks or Chunking())
    found = plan_program(written, without, options, share, forms, only_in_chunks=in_chunks is not None)
    read, result = found.program, found.result
    peak = own_peak_bytes if found.own_peak is None else found.own_peak
    _report(name, read.graph, result, peak)
    if options.compiler == "eager" and not _is_minor(read, result, options):
        warn_of_plan(name, read.graph, result, options.settings, peak)
    emitted = emit(read.module, read.lowered, result.plan, boxed=False)
    return PlannedModule(name, read.module, read.graph, result, emitted, peak, found.own_keeps_more)


def _is_minor(read: ReadProgram, result: Result, options: Options) -> bool:
    """Tell whether a graph that misses a percentage is none that the percentage was meant for."""
    is_share = is_part(options.budget)
    return is_share and (read.turn is None or result.peak_bytes[read.graph.spaces[0].name] < MINOR_BYTES)


def _report(name: str, graph: Graph, result: Result, own_peak: int | None) -> None:
    space = graph.spaces[0].name
    without = "" if own_peak is None else f", PyTorch alone {format_bytes(own_peak)}"
    _LOG.info(
        "%s: peak %s on %s (untouched %s%s), %d runs repeated for %.1f %% more time, %s",
        name,
        format_bytes(result.peak_bytes[space]),
        space,
        format_bytes(result.baseline_peak_bytes[space]),
        without,
        result.reruns,
        100 * result.extra_cost / result.base_cost if result.base_cost else 0.0,
        result.status,
    )
