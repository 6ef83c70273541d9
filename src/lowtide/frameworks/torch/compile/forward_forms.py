"""A forward pass without gradients as it is written, and with its largest products in chunks."""

from collections.abc import Collection, Sequence
from functools import cached_property

from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.read_program import ReadProgram, read_program
from lowtide.frameworks.torch.internals.fake_tensors import outside_of_fake_modes
from lowtide.frameworks.torch.rewrites.chunks.split_updates import split_forward
from lowtide.graph import Graph


class ForwardForms:
    """Both forms of a forward pass, for `plan_model`; that in chunks is made, and tried, when it is asked for."""

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
    def left_whole(self) -> Sequence[str]:
        """What large products are computed as a whole, and why, a sentence each."""
        _, left = self._split
        return left

    def program_of(self, graph: Graph) -> ReadProgram:
        """Return the program that one of the graphs is of."""
        return self._written if self._chunks is None or graph is self.graph else self._chunks

    @cached_property
    def _chunks(self) -> ReadProgram | None:
        module, _ = self._split
        return None if module is None else read_program(self.graph.name, module, self._held, self._options)

    @cached_property
    def _split(self) -> tuple[GraphModule | None, Sequence[str]]:
        with outside_of_fake_modes():
            return split_forward(self._written.module, self._written.inputs)
