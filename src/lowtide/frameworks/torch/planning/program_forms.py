"""Forms of a compiled program: unmodified, and with its largest products in chunks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch.fx import GraphModule

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.program import Form, FormName, Program
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.internals.fake_tensors import outside_of_fake_modes
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.read_program import ReadProgram, read_program
from lowtide.frameworks.torch.reading.costs import work_of
from lowtide.frameworks.torch.reading.lowering import lower_body
from lowtide.frameworks.torch.reading.outlined import register_program
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import (
    ChunkedModule,
    Chunking,
    Fuse,
    chunk_module,
    chunk_module_in_two_passes,
)
from lowtide.frameworks.torch.rewrites.chunks.region_search import found_or_none
from lowtide.frameworks.torch.rewrites.fuse_chunk_ops import FuseChunkOps
from lowtide.frameworks.torch.rewrites.outline_chunks import OutlineChunks
from lowtide.frameworks.torch.rewrites.run import run_rewrites


@dataclass(frozen=True, eq=False)
class CompiledForm(Form):
    program: ReadProgram = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class ProgramForms(Program):
    """All forms of a compiled program.

    Dynamic sizes rule out chunks, which are tried with real inputs.
    """

    written: ReadProgram
    held: Collection[int]
    """Positions of inputs that outlive it."""
    options: Options
    chunking: Chunking = field(default_factory=Chunking)

    @property
    def graph(self) -> Graph:
        return self.written.graph

    @property
    def has_rounded_forms(self) -> bool:
        return True

    def make_unmodified(self) -> CompiledForm:
        return CompiledForm("unmodified", self.graph, program=self.written)

    def make_form(self, name: FormName, *, exact: bool) -> CompiledForm | None:
        chunking = self.chunking if exact else self.chunking.to_rounding()
        finer = None
        if name == "in finest chunks":
            finer = self.form("in finer chunks", exact=exact)
            if not chunking.budget_bytes or finer is None:
                return None
            chunking = replace(chunking, budget_bytes=0)
        split = self._split(chunk_module if name == "in chunks" else chunk_module_in_two_passes, chunking)
        if split is not None:
            self._skipped[exact] = tuple(split.left_whole)
        if split is None or split.module is None:
            return None
        module = outline_chunks(split.module, chunking.fuse) if chunking.fused else split.module
        program = read_program(self.graph.name, module, self.held, self.options)
        if finer is not None and finer.graph.fingerprint == program.graph.fingerprint:
            return None
        return CompiledForm(name, program.graph, exact, program=program)

    def left_whole(self, *, exact: bool = True) -> tuple[str, ...]:
        return self._skipped.get(exact, ())

    def within(self, settings: PlanSettings) -> "ProgramForms":
        if settings.budget is None:
            return self
        peaks = simulate(self.graph, Plan.baseline(self.graph)).peak_bytes
        budget = parse_budget(settings.budget, self.graph, peaks, transient=settings.transient)
        return replace(
            self, chunking=replace(self.chunking, budget_bytes=max(0, budget.allowed[self.graph.spaces[0].name] or 0))
        )

    def program_for(self, plan: Plan) -> ReadProgram:
        form = self.form_of(plan)
        return form.program if isinstance(form, CompiledForm) else self.written

    @cached_property
    def _skipped(self) -> dict[bool, tuple[str, ...]]:
        return {}

    def _split(self, split: Callable[..., ChunkedModule | None], chunking: Chunking) -> ChunkedModule | None:
        module, inputs = self.written.module, self.written.inputs
        values = map(value_of, module.graph.find_nodes(op="placeholder"))
        if any(not isinstance(value, torch.Tensor) or is_symbolic(value) for value in values):
            return None
        with outside_of_fake_modes():
            return found_or_none(partial(split, module, inputs, chunking))


_SETTINGS = PlanSettings(effort="fast", addresses=False)


def outline_chunks(module: GraphModule, fuse: Fuse | None = None) -> GraphModule:
    """Return a program whose regions in chunks are ops with own plans; `fuse` compiles loops."""
    return run_rewrites(module, [OutlineChunks(partial(_hold_planned, fuse))])


def _hold_planned(fuse: Fuse | None, module: GraphModule) -> str:
    if fuse is not None:
        module = run_rewrites(module, [FuseChunkOps(fuse)])
    lowered = lower_body(module)
    graph = graph_of("chunks", module, lowered)
    found = find_plan(graph, _SETTINGS)
    returned = int(graph.sizes[(graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.OUTPUT)].sum())
    scratch = found.peak_bytes[graph.spaces[0].name] - returned
    work = [each for op in lowered.ops for node in op.kernels for each in work_of(node)]
    return register_program(emit(module, lowered, found.plan, boxed=False), scratch_bytes=scratch, work=work)
