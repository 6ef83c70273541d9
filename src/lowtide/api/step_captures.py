"""Graphs of a training step at any size, captured or computed."""

from collections.abc import Callable

from lowtide.engine.graph import Graph
from lowtide.engine.graph.resized import N_SAMPLES, have_equal_structure, resized
from lowtide.engine.offload import Host
from lowtide.engine.offload.state_in_graph import state_on_host
from lowtide.engine.offload.updates import UpdatePlace
from lowtide.engine.planning.program import ALL, Form, FormName
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.training_steps import Step

Capture = Callable[[int], Step]
CaptureInChunks = Callable[[int, FormName], Graph | None]
"""Captures a form in chunks of a size; None if impossible."""


def no_chunks(_size: int, _form: FormName) -> None:
    """Return no form in chunks."""


def no_forms(_form: FormName) -> None:
    """Return no form in chunks."""


class Captures:
    """The graphs of a training step by size.

    From three captures of the same structure, graphs of other sizes are computed, in milliseconds. Forms in chunks are
    always captured.
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
        if size not in self._steps:
            self._steps[size] = self._capture(size)
        return self._steps[size]

    def graph(self, size: int) -> Graph:
        computed = self._computed(size) if size not in self._steps else None
        if computed is not None:
            return computed
        graph = self.step(size).graph
        if size not in self._samples:
            self._samples.append(size)
        return graph

    @property
    def moves_parameters(self) -> bool:
        return all(step.moves_parameters for step in self._steps.values())

    def graph_in_chunks(self, size: int, form: FormName) -> Graph | None:
        key = (size, form)
        if key not in self._forms:
            self._forms[key] = self._in_chunks(size, form)
        return self._forms[key]

    def is_right(self, size: int) -> bool:
        """Return whether a size's graph equals its capture; if not, all later sizes are captured."""
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
    """A training step of one size, with forms in chunks and a host for optimizer state and parameters."""

    def __init__(
        self,
        program: Graph,
        in_chunks: Callable[[FormName], Graph | None],
        host: Host | None = None,
        share: int = 0,
        place: UpdatePlace = "device",
        *,
        moves_parameters: bool = True,
    ) -> None:
        """Put `share` eighths of the state of all forms on a host, and update it at a place; see `Program`.

        Without `moves_parameters`, they stay on the device.
        """
        self._program, self._in_chunks, self._host = program, in_chunks, host
        self._share = share
        self._moves_parameters = moves_parameters
        self._place: UpdatePlace = place
        self._with_state: dict[tuple[int, UpdatePlace], SizedStep | None] = {}
        placed = self._placed(program)
        self._is_placed = placed is not None
        super().__init__(placed or self._hosted(program))

    @property
    def has_rounded_forms(self) -> bool:
        return self._in_chunks is not no_forms

    def without_chunks(self) -> "SizedStep":
        return self._copied(no_forms, self._share, self._place)

    def make_form(self, name: FormName, *, exact: bool) -> Form | None:
        """Return a form in chunks. On a GPU, no chunks are known to be bit-equal."""
        graph = None if exact else self._in_chunks(name)
        return None if graph is None else Form(name, self._placed(graph) or self._hosted(graph), is_exact=False)

    def with_state_on_host(self, share: int, place: UpdatePlace = "device") -> "SizedStep | None":
        """Return the step with state on its host; None without a host link, or such buffers or updates."""
        key = (share, place)
        if share > ALL and not self._moves_parameters:
            return None
        if key not in self._with_state:
            moved = self._copied(self._in_chunks, share, place)
            self._with_state[key] = moved if moved._is_placed else None
        return self._with_state[key]

    def _copied(self, in_chunks: Callable[[FormName], Graph | None], share: int, place: UpdatePlace) -> "SizedStep":
        return SizedStep(self._program, in_chunks, self._host, share, place, moves_parameters=self._moves_parameters)

    def _hosted(self, graph: Graph) -> Graph:
        return graph if self._host is None else self._host.added_to(graph)

    def _placed(self, graph: Graph) -> Graph | None:
        if self._host is None or not self._share:
            return None
        return state_on_host(self._hosted(graph), self._share / ALL, self._host, self._place)
