"""A program of the compiler as it is written, and with its largest products in chunks."""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import torch

from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.read_program import ReadProgram, read_program
from lowtide.frameworks.torch.internals.fake_tensors import outside_of_fake_modes
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.split_updates import (
    SplitModule,
    split_module,
    split_module_again,
)
from lowtide.graph import Graph
from lowtide.plan import Plan


class ProgramForms:
    """All forms of a program, for `plan_model`; one in chunks is made, and tried, when it is asked for.

    What the backward pass needs of large products is saved in `in_chunks`, and computed again in `in_finer_chunks`.
    Dynamic sizes are left whole, since a trial cannot have them.
    """

    chunks_take_time = False

    def __init__(self, written: ReadProgram, held: Collection[int], options: Options) -> None:
        """Take a program whose inputs at the places `held` outlive it."""
        self._written, self._held, self._options = written, held, options

    @property
    def graph(self) -> Graph:
        """The program as it is written."""
        return self._written.graph

    @property
    def in_chunks(self) -> Graph | None:
        """The program with its largest products in chunks; None where that is of no use."""
        return None if self._chunks is None else self._chunks.graph

    @property
    def in_finer_chunks(self) -> Graph | None:
        """The same with rows of some products computed twice; None where that is of no use."""
        return None if self._finer is None else self._finer.graph

    @property
    def left_whole(self) -> Sequence[str]:
        """What large products are computed as a whole, and why, a sentence each, of the forms that were asked for."""
        splits = [vars(self).get(name) for name in ("_split_again", "_split")]
        return next((split.left_whole for split in splits if split is not None), ())

    def program_for(self, plan: Plan) -> ReadProgram:
        """Return the form that a plan is for, of those that were asked for."""
        made = [program for name in ("_chunks", "_finer") if (program := vars(self).get(name)) is not None]
        is_for = (program for program in made if program.graph.fingerprint == plan.graph_fingerprint)
        return next(is_for, self._written)

    @cached_property
    def _chunks(self) -> ReadProgram | None:
        return self._read(self._split)

    @cached_property
    def _finer(self) -> ReadProgram | None:
        return self._read(self._split_again)

    @cached_property
    def _split(self) -> SplitModule | None:
        return self._made(split_module)

    @cached_property
    def _split_again(self) -> SplitModule | None:
        return self._made(split_module_again)

    def _made(self, split: Callable[..., SplitModule | None]) -> SplitModule | None:
        module, inputs = self._written.module, self._written.inputs
        values = map(value_of, module.graph.find_nodes(op="placeholder"))
        if any(not isinstance(value, torch.Tensor) or is_symbolic(value) for value in values):
            return None
        with outside_of_fake_modes():
            return split(module, inputs)

    def _read(self, split: SplitModule | None) -> ReadProgram | None:
        made = None if split is None else split.module
        return None if made is None else read_program(self.graph.name, made, self._held, self._options)
