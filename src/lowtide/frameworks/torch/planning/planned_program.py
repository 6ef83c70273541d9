"""Plan a graph to be compiled, and rewrite it in plan order."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import is_part
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.internals.tensors import plan_at_most, traced_with
from lowtide.frameworks.torch.planning.missed_budgets import warn_if_missed
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share, plan_program
from lowtide.frameworks.torch.planning.program_forms import ProgramForms
from lowtide.frameworks.torch.planning.read_program import ReadProgram, read_program, read_sizes

_LOG = logging.getLogger("lowtide")
MINOR_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModule:
    """A compiled program and its plan."""

    name: str
    source: GraphModule
    """The program before planning, with the user's source lines."""
    graph: Graph
    result: Result
    module: GraphModule
    own_peak_bytes: int | None = None
    """Peak on the first device without lowtide, by the same compiler."""
    fewer_saved_bytes: int = 0
    """Compared with PyTorch's own program."""
    saved_bytes: list[int] = field(default_factory=list[int])
    """For each tensor saved for backward, in order, at planned sizes."""
    kernel_peaks: list[int] = field(default_factory=list[int])
    """Under Inductor, peaks of passes after fusion, with the caller's bytes on the first device. Passes from a cache
    are missing."""
    ops_because: str | None = None
    kernels: list[tuple[Graph, Result]] = field(default_factory=list[tuple[Graph, Result]])
    """Of both passes in execution order, once compiled by Inductor without a budget."""

    @property
    def predicted_peak_bytes(self) -> dict[str, int]:
        """By memory space, after fusion if known."""
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
) -> PlannedModule:
    """Plan a functional graph; inputs at positions `held` outlive it. Warns if the budget is missed.

    Under Inductor, a missed budget is known only after fusion, and nothing is computed in chunks. `own` is PyTorch's
    version. Raises UnsupportedError for a graph that cannot be planned, FingerprintError if ranks differ or saved plans
    lack this graph.
    """
    written = read_program(name, module, held, options)
    without = None if own is None else read_program(name, own, held, options)
    forms = ProgramForms(written, held, options) if options.compiler == "eager" else None
    found = plan_program(written, without, options, share, forms)
    read, result = found.program, found.result
    peak = own_peak_bytes if found.own_peak is None else found.own_peak
    _report(name, read.graph, result, peak)
    if options.compiler == "eager" and not _is_minor(read, result, options):
        warn_if_missed(name, read.graph, result, options.settings, peak)
    emitted = emit(read.module, read.lowered, result.plan, boxed=False)
    return PlannedModule(name, read.module, read.graph, result, emitted, peak, found.fewer_saved_bytes)


def unplanned_module(name: str, module: GraphModule, held: Collection[int], options: Options) -> PlannedModule:
    """Return a program as it is, with sizes but without costs."""
    graph = read_sizes(name, module, held)
    result = result_with(graph, Plan.baseline(graph), options.settings, "given", None)
    return PlannedModule(name, module, graph, result, module)


def _is_minor(read: ReadProgram, result: Result, options: Options) -> bool:
    return is_part(options.budget) and result.peak_bytes[read.graph.spaces[0].name] < MINOR_BYTES


def _report(name: str, graph: Graph, result: Result, own_peak: int | None) -> None:
    space = graph.spaces[0].name
    without = "" if own_peak is None else f", PyTorch alone {format_bytes(own_peak)}"
    _LOG.info(
        "%s: peak %s on %s (baseline %s%s), %d ops recomputed, +%.1f %% time, %s",
        name,
        format_bytes(result.peak_bytes[space]),
        space,
        format_bytes(result.baseline_peak_bytes[space]),
        without,
        result.reruns,
        100 * result.extra_cost / result.base_cost if result.base_cost else 0.0,
        result.status,
    )


def limit_to_bucket(inputs: Iterable[Any]) -> None:
    """Guard a graph's sizes between two powers of two, and plan it for the larger one.

    Calls outside the range compile again, since a plan may miss its budget at a larger size.
    """
    for size in inputs:
        if isinstance(size, torch.SymInt):
            most = 1 << max(traced_with(size) - 1, 1).bit_length()
            bool(size <= most)
            bool(size > most // 2)
            plan_at_most(size, most)
