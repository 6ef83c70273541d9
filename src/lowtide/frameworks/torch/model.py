"""A PyTorch program: captured once, planned, applied and measured."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch.export import ExportedProgram

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host, find_link, with_state_on_host
from lowtide.engine.offload.updates import UpdatePlace, updates_to_move
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.program import Form, FormName
from lowtide.frameworks.model import Model
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.capture.exported_file import load_exported
from lowtide.frameworks.torch.emit.apply import Applied, apply_plan, check_plan
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.emit.exported import save_exported
from lowtide.frameworks.torch.emit.state_on_host import ChooseUpdates, put_state_on_host
from lowtide.frameworks.torch.emit.updates_on_host import buffers_of_updates
from lowtide.frameworks.torch.internals.compiling import one_at_a_time
from lowtide.frameworks.torch.internals.exported_archive import has_fixed_sizes
from lowtide.frameworks.torch.measure.measure_captured import check_real
from lowtide.frameworks.torch.measure.measure_plan import ToMeasure
from lowtide.frameworks.torch.measure.measured_costs import measure_prices
from lowtide.frameworks.torch.measure.step_times import TIMED_CALLS
from lowtide.frameworks.torch.planning.agreement import require_one_order
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import (
    Chunking,
    chunk_module,
    chunk_module_in_two_passes,
)
from lowtide.frameworks.torch.rewrites.chunks.region_search import found_or_none


@dataclass(frozen=True, eq=False)
class TorchForm(Form):
    """A form of a PyTorch program, and its reading."""

    reading: Reading = field(kw_only=True)
    on_host: int = 0
    """Eighths of the optimizer state, then of the parameters, on the host."""


class TorchModel(Model):
    """A PyTorch program, captured and read once."""

    def __init__(
        self,
        source: Any,
        dims: Mapping[str, int] | None = None,
        host: Host | None = None,
        *,
        trust: bool = False,
    ) -> None:
        """Capture a program: a path to a .pt2 file, or anything that `capture` takes, with its errors.

        With `trust`, loading a file may run its code.
        """
        if dims:
            raise UsageError("a PyTorch program takes its sizes from its example inputs; --dim is for ONNX models")
        self.host = host
        if isinstance(source, str | Path):
            source = load_exported(Path(source), trust=trust)
        self.captured = capture(source)
        self._has_file = isinstance(source, ExportedProgram) and has_fixed_sizes(source) and host is None
        self._on_host = 0
        self._place: UpdatePlace = "device"
        self._reading = self._read(self.captured)
        self._with_state: dict[tuple[int, UpdatePlace], TorchModel | None] = {}
        self._skipped: dict[bool, tuple[str, ...]] = {}
        self._verified: WeakSet[Plan] = WeakSet()

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Of exported programs; none with dynamic sizes or without a file."""
        return (".pt2",) if self._has_file else ()

    @property
    def graph(self) -> Graph:
        """The graph of the program, with its host."""
        return self._graph

    @property
    def has_rounded_forms(self) -> bool:
        """True: chunks may reorder sums if rounding is allowed."""
        return True

    def make_unmodified(self) -> TorchForm:
        """Return the program as it was captured."""
        exact = self._place == "device"
        return TorchForm("unmodified", self.graph, exact, reading=self._reading, on_host=self._on_host)

    @one_at_a_time
    def make_form(self, name: FormName, *, exact: bool) -> TorchForm | None:
        """Return the program in chunks of rows; finer ones compute rows of some products twice."""
        if name == "in finest chunks":
            return None
        chunking = Chunking() if exact else Chunking().to_rounding()
        rewrite = chunk_module if name == "in chunks" else chunk_module_in_two_passes
        chunked = found_or_none(partial(rewrite, self.captured.graph_module, self.captured.inputs, chunking))
        if chunked is None:
            return None
        self._skipped[exact] = chunked.left_whole
        captured = chunked.captured(self.captured)
        if captured is None:
            return None
        reading = self._read(captured)
        graph = self._with_host_added(reading)
        is_exact = exact and not graph.updates_on_host.any()
        return TorchForm(name, graph, is_exact, reading=reading, on_host=self._on_host)

    def left_whole(self, *, exact: bool = True) -> tuple[str, ...]:
        """Return one sentence per large product that chunking skipped, if tried, with the reason."""
        return self._skipped.get(exact, ())

    def with_host(self, host: Host) -> "TorchModel":
        """Return the same program with a host for copies."""
        other = self._copied()
        other.host, other._has_file = host, False
        return other

    def _copied(self) -> "TorchModel":
        other = copy(self)
        other._with_state = {}
        for derived in ("_graph", "_unmodified", "_forms", "most_on_host"):
            vars(other).pop(derived, None)
        return other

    def with_state_on_host(self, share: int, place: UpdatePlace = "device") -> "TorchModel | None":
        """Return a training step with `share` eighths of its optimizer state on its host, or None.

        Shares above 8 also move that many eighths of the parameters. None without a host or such tensors, or if no
        update can run at `place`.
        """
        key = (share, place)
        if key not in self._with_state:
            self._with_state[key] = self._make_with_state(share, place)
        return self._with_state[key]

    @one_at_a_time
    def _make_with_state(self, share: int, place: UpdatePlace) -> "TorchModel | None":
        if find_link(self.graph, 0) is None:
            return None
        moved = put_state_on_host(self._reading, share, self._choice_of_updates(place))
        if moved is None:
            return None
        other = self._copied()
        other._on_host, other._place, other._reading = share, place, Reading(moved)
        return other

    def _choice_of_updates(self, place: UpdatePlace) -> ChooseUpdates | None:
        host, link = self.host, find_link(self.graph, 0)
        if place == "device" or host is None or link is None:
            return None
        return lambda graph, state, parameters: updates_to_move(
            graph, state, link, host.update_bytes_per_s, place, parameters
        )

    @one_at_a_time
    def _read(self, captured: Captured) -> Reading:
        reading = Reading(captured)
        if self._on_host:
            moved = put_state_on_host(reading, self._on_host, self._choice_of_updates(self._place))
            moved = moved or put_state_on_host(reading, self._on_host)
            return reading if moved is None else Reading(moved)
        return reading

    @cached_property
    def _graph(self) -> Graph:
        return self._with_host_added(self._reading)

    def _with_host_added(self, reading: Reading) -> Graph:
        if self.host is None:
            return reading.graph
        placeholders = reading.captured.graph_module.graph.find_nodes(op="placeholder")
        state = [reading.lowered.buffers_of[placeholders[place]][0] for place in reading.captured.on_host]
        graph = self.host.added_to(reading.graph)
        if not state:
            return graph
        of_updates = buffers_of_updates(reading.lowered)
        return with_state_on_host(graph, [*state, *of_updates], self.host.update_bytes_per_s if of_updates else None)

    @one_at_a_time
    def apply(self, plan: Plan, *, verified: bool = False) -> Applied:
        """Return the program as a callable that follows a plan for any of its forms.

        A plan is verified once, unless already `verified`. Raises FingerprintError for a plan of another graph, or at
        the first call if ranks recompute collectives in different orders; VerificationError for a wrong plan.
        """
        form = self.planned_form(plan)
        module = form.reading.captured.graph_module
        applied = apply_plan(
            plan,
            form.reading,
            form.graph,
            verified=verified or plan in self._verified,
            before_first_call=lambda: require_one_order(module, form.graph, plan),
        )
        self._verified.add(plan)
        return applied

    def planned_form(self, plan: Plan) -> TorchForm:
        """Return the form of a plan, or the unmodified one for another program's plan."""
        programs = (self, *(each for each in self._with_state.values() if each is not None))
        made = (form for each in programs for form in each.made_forms())
        known = next((form for form in made if form.graph.fingerprint == plan.graph_fingerprint), None)
        form = known or self.form_of(plan) or self.form("unmodified")
        if not isinstance(form, TorchForm):
            raise UsageError("a form of a PyTorch program is a TorchForm; override make_form to return one")
        return form

    def graph_for(self, plan: Plan) -> Graph:
        """Return the graph of `planned_form(plan)`."""
        return self.planned_form(plan).graph

    def save(self, plan: Plan, path: Path) -> None:
        """Write an exported program in plan order; see `save_exported`.

        Raises UnsupportedError for other programs, which have only plan files.
        """
        if not self._has_file:
            raise UnsupportedError(
                f"cannot write a PyTorch program to {path} unless it was exported with fixed sizes and copies nothing "
                "to a host; write the plan (-o NAME.plan.json) and apply it in Python with lowtide.apply(plan, program)"
            )
        form = self.planned_form(plan)
        reading = form.reading
        check_plan(plan, reading, form.graph, verified=plan in self._verified)
        save_exported(self.captured, emit(reading.captured.graph_module, reading.lowered, plan, boxed=False), path)

    def check_measurable(self) -> None:
        """Raise UnsupportedError if the program has no real inputs."""
        check_real(self.captured.example_args, self.captured.example_kwargs)

    def measure(self, plan: Plan, *, timed_calls: int = TIMED_CALLS) -> Measurement:
        """Measure the program in its own order, under the plan, and as the user wrote it, from the same state.

        Results, gradients and state are compared bit by bit, then number by number; see `compare_with_plain`. At most
        `timed_calls` calls of each are timed. Warns if the plan's peak is more than 2 % above the prediction.
        """
        return self.to_measure(plan).measure(timed_calls)

    def to_measure(self, plan: Plan) -> ToMeasure:
        """Return the programs that `measure` compares."""
        graph = self.graph_for(plan)
        return ToMeasure(
            captured=self.captured,
            unmodified=self.apply(Plan.baseline(self.graph), verified=True),
            planned=self.apply(plan),
            graph=graph,
            predicted_bytes=simulate(graph, plan).peak_bytes[graph.spaces[0].name],
            may_round=not self.planned_form(plan).is_exact,
            has_host=self.host is not None,
        )

    def measure_costs(self) -> Prices:
        """Run each op alone and return its device time; see `measure_prices`."""
        return measure_prices(self._reading)


def open_trusted(source: Any, dims: Mapping[str, int] | None = None) -> TorchModel:
    """Open a program like `TorchModel`; its file may run code."""
    return TorchModel(source, dims, trust=True)
