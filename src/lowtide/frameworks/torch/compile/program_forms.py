"""A program of the compiler as it is written, and with its largest products in chunks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.program import Form, FormName, Program
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.outlining import outline_chunks
from lowtide.frameworks.torch.compile.read_program import ReadProgram, read_program
from lowtide.frameworks.torch.internals.fake_tensors import outside_of_fake_modes
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import (
    ChunkedModule,
    Chunking,
    chunk_module,
    chunk_module_in_two_passes,
)


@dataclass(frozen=True, eq=False)
class CompiledForm(Form):
    """A form of a program of the compiler, with the program that was read for it."""

    program: ReadProgram = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class ProgramForms(Program):
    """All forms of a program of the compiler, for `plan_best_form`.

    The form in chunks saves for backward the inputs of large products; finer forms recompute them. Programs with
    dynamic sizes have no forms in chunks, because chunks are tried with real inputs.
    """

    written: ReadProgram
    held: Collection[int]
    """Positions of the inputs that outlive the program."""
    options: Options
    chunking: Chunking = field(default_factory=Chunking)
    """Settings of chunks for all forms; for the finer ones, with the bytes that a budget leaves to the program."""

    @property
    def graph(self) -> Graph:
        """The graph of the program."""
        return self.written.graph

    @property
    def has_rounded_forms(self) -> bool:
        """True: chunks may make sums in another order if rounding is allowed."""
        return True

    def make_unmodified(self) -> CompiledForm:
        """Return the program without chunks."""
        return CompiledForm("unmodified", self.graph, program=self.written)

    def make_form(self, name: FormName, *, exact: bool) -> CompiledForm | None:
        """Return the program with its largest products in chunks; finer forms compute rows of some products twice."""
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
        module = outline_chunks(split.module) if chunking.fused else split.module
        program = read_program(self.graph.name, module, self.held, self.options)
        if finer is not None and finer.graph.fingerprint == program.graph.fingerprint:
            return None
        return CompiledForm(name, program.graph, exact, program=program)

    def left_whole(self, *, exact: bool = True) -> tuple[str, ...]:
        """Return one sentence for each large product that chunking skipped, of the finest form that was made."""
        return self._skipped.get(exact, ())

    def within(self, settings: PlanSettings) -> "ProgramForms":
        """Return the forms for the bytes that a budget leaves to the program in the first memory space."""
        if settings.budget is None:
            return self
        peaks = simulate(self.graph, Plan.baseline(self.graph)).peak_bytes
        budget = parse_budget(settings.budget, self.graph, peaks, transient=settings.transient)
        return replace(
            self, chunking=replace(self.chunking, budget_bytes=max(0, budget.allowed[self.graph.spaces[0].name] or 0))
        )

    def program_for(self, plan: Plan) -> ReadProgram:
        """Return the program of the form that a plan is for; the one without chunks for a plan of another program."""
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
            return split(module, inputs, chunking)
