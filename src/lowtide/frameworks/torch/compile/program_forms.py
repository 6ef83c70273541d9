"""A program of the compiler as it is written, and with its largest products in chunks."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import parse_budget
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


@dataclass(frozen=True)
class ProgramForms:
    """All forms of a program, for `plan_model`; one in chunks is made, and tried, when it is asked for.

    What the backward pass needs of large products is saved in `in_chunks`, and computed again in the others. Dynamic
    sizes are left whole, since a trial cannot have them.
    """

    written: ReadProgram
    held: Collection[int]
    """The places of the inputs that outlive the program."""
    options: Options
    chunking: Chunking = field(default_factory=Chunking)
    """What is asked of chunks, for all forms; of those that are made for a budget, what that leaves to the program."""

    @property
    def chunks_take_time(self) -> bool:
        """Whether only a budget asks for chunks; those that take time are of the later forms."""
        return False

    @property
    def graph(self) -> Graph:
        """The program as it is written."""
        return self.written.graph

    @property
    def in_chunks(self) -> Graph | None:
        """The program with its largest products in chunks; None where that is of no use."""
        return None if self._chunks is None else self._chunks.graph

    @property
    def in_finer_chunks(self) -> Graph | None:
        """The same with rows of some products computed twice, in chunks for what is allowed; None without use."""
        return None if self._finer is None else self._finer.graph

    @property
    def in_finest_chunks(self) -> Graph | None:
        """The same in chunks for less than is allowed; None where there are no smaller ones."""
        forms = [program.graph for program in (self._finer, self._finest) if program is not None]
        return forms[1] if len({form.fingerprint for form in forms}) > 1 else None

    @property
    def left_whole(self) -> Sequence[str]:
        """What large products are computed as a whole, and why, a sentence each, of the forms that were asked for."""
        splits = [vars(self).get(name) for name in ("_split_most", "_split_again", "_split")]
        return next((split.left_whole for split in splits if split is not None), ())

    def within(self, settings: PlanSettings) -> "ProgramForms":
        """Return the forms for what a budget leaves to the program in the first memory space."""
        if settings.budget is None:
            return self
        peaks = simulate(self.graph, Plan.baseline(self.graph)).peak_bytes
        budget = parse_budget(settings.budget, self.graph, peaks, transient=settings.transient)
        return replace(
            self, chunking=replace(self.chunking, budget_bytes=max(0, budget.allowed[self.graph.spaces[0].name] or 0))
        )

    @cached_property
    def to_rounding(self) -> "ProgramForms":
        """The same program, whose chunks may make sums in another order, so that they equal it to rounding alone."""
        return replace(self, chunking=self.chunking.to_rounding())

    def program_for(self, plan: Plan) -> ReadProgram:
        """Return the form that a plan is for, of those that were asked for."""
        rounded: ProgramForms | None = vars(self).get("to_rounding")
        made = [*self._made_so_far(), *(() if rounded is None else rounded._made_so_far())]
        is_for = (program for program in made if program.graph.fingerprint == plan.graph_fingerprint)
        return next(is_for, self.written)

    def _made_so_far(self) -> list[ReadProgram]:
        names = ("_chunks", "_finer", "_finest")
        return [program for name in names if (program := vars(self).get(name)) is not None]

    @cached_property
    def _chunks(self) -> ReadProgram | None:
        return self._read(self._split)

    @cached_property
    def _finer(self) -> ReadProgram | None:
        return self._read(self._split_again)

    @cached_property
    def _finest(self) -> ReadProgram | None:
        return self._read(self._split_most)

    @cached_property
    def _split(self) -> ChunkedModule | None:
        return self._made(chunk_module, self.chunking)

    @cached_property
    def _split_again(self) -> ChunkedModule | None:
        return self._made(chunk_module_in_two_passes, self.chunking)

    @cached_property
    def _split_most(self) -> ChunkedModule | None:
        if not self.chunking.budget_bytes or self._split_again is None:
            return None
        return self._made(chunk_module_in_two_passes, replace(self.chunking, budget_bytes=0))

    def _made(self, split: Callable[..., ChunkedModule | None], chunking: Chunking) -> ChunkedModule | None:
        module, inputs = self.written.module, self.written.inputs
        values = map(value_of, module.graph.find_nodes(op="placeholder"))
        if any(not isinstance(value, torch.Tensor) or is_symbolic(value) for value in values):
            return None
        with outside_of_fake_modes():
            return split(module, inputs, chunking)

    def _read(self, split: ChunkedModule | None) -> ReadProgram | None:
        if split is None or split.module is None:
            return None
        made = outline_chunks(split.module) if self.chunking.fused else split.module
        return read_program(self.graph.name, made, self.held, self.options)
