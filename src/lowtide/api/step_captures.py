"""Graphs of one training step at any size: captured, or computed from three captures."""

from collections.abc import Callable

from lowtide.engine.graph import Graph
from lowtide.engine.graph.resized import N_SAMPLES, have_equal_structure, resized
from lowtide.engine.offload import Host, find_link
from lowtide.engine.offload.state_in_graph import copied_around_updates, state_of
from lowtide.engine.planning.program import ALL, Form, FormName
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.training_steps import Step

Capture = Callable[[int], Step]
"""Captures the step of a size."""
CaptureInChunks = Callable[[int, FormName], Graph | None]
"""Captures a form in chunks of a size, equal up to rounding; None if it has no such form."""


def no_chunks(_size: int, _form: FormName) -> None:
    """Return None: the program has no forms in chunks."""


def no_forms(_form: FormName) -> None:
    """Return None: the step has no forms in chunks."""


class Captures:
    """The graphs of one training step by size.

    The first sizes are captured. Once three captures have the same structure, graphs of other sizes are computed from
    them, which takes milliseconds. `is_right` captures one of these sizes as well. Forms in chunks are always captured.
    """

    def __init__(
        self, capture: Capture, first: tuple[int, Step] | None = None, in_chunks: CaptureInChunks = no_chunks
    ) -> None:
        self._capture, self._in_chunks = capture, in_chunks
        self._steps: dict[int, Step] = {} if first is None else dict([first])
        self._forms: dict[tuple[int, FormName], Graph | None] = {}
        self._samples: list[int] = []
        self._computes = True

    def step(self, size: int) -> Step:
        """Return the captured step of a size."""
        if size not in self._steps:
            self._steps[size] = self._capture(size)
        return self._steps[size]

    def graph(self, size: int) -> Graph:
        """Return the graph of a size, captured or computed."""
        computed = self._computed(size) if size not in self._steps else None
        if computed is not None:
            return computed
        graph = self.step(size).graph
        if size not in self._samples:
            self._samples.append(size)
        return graph

    def graph_in_chunks(self, size: int, form: FormName) -> Graph | None:
        """Return the captured graph of a form in chunks; None if there is none."""
        key = (size, form)
        if key not in self._forms:
            self._forms[key] = self._in_chunks(size, form)
        return self._forms[key]

    def is_right(self, size: int) -> bool:
        """Return whether the graph of a size equals its capture; if not, every size is captured from now on."""
        computed = self._computed(size)
        if computed is None:
            return True
        real = self.step(size).graph
        self._computes = have_equal_structure(real, computed) and bool((real.sizes == computed.sizes).all())
        return self._computes

    def _computed(self, size: int) -> Graph | None:
        latest = self._samples[-N_SAMPLES:]
        if not self._computes or len(latest) < N_SAMPLES:
            return None
        return resized([(each, self._steps[each].graph) for each in latest], size)


class SizedStep(GraphModel):
    """A training step of one size, with forms in chunks and a host that can hold its optimizer state."""

    def __init__(
        self, program: Graph, in_chunks: Callable[[FormName], Graph | None], host: Host | None = None, share: int = 0
    ) -> None:
        """Place `share` eighths of the state of a program and of its forms on a host."""
        self._program, self._in_chunks, self._host, self._share = program, in_chunks, host, share
        self._with_state: dict[int, SizedStep | None] = {}
        super().__init__(self._placed(program))

    @property
    def has_rounded_forms(self) -> bool:
        """True: chunks add up numbers in another order."""
        return True

    def make_form(self, name: FormName, *, exact: bool) -> Form | None:
        """Return a form in chunks. No chunks are known to be bit-equal on a GPU."""
        graph = None if exact else self._in_chunks(name)
        return None if graph is None else Form(name, self._placed(graph), is_exact=False)

    def with_state_on_host(self, share: int) -> "SizedStep | None":
        """Return the step with `share` eighths of its state on its host; None without a link to one, or such state."""
        if share not in self._with_state:
            has_state = find_link(self.graph, 0) is not None and bool(state_of(self.graph))
            moved = SizedStep(self._program, self._in_chunks, self._host, share) if has_state else None
            self._with_state[share] = moved
        return self._with_state[share]

    def _placed(self, graph: Graph) -> Graph:
        hosted = graph if self._host is None else self._host.added_to(graph)
        return copied_around_updates(hosted, self._share / ALL) or hosted
