"""Forms of a function, and orders of their kernels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.core.index_spaces import OpId
from lowtide.core.units import format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.result import Result
from lowtide.engine.recompute.checkpointing import segment_plan
from lowtide.frameworks.jax.emit.run_plan import needed_places, run_plan
from lowtide.frameworks.jax.flat.flatten import Flat, MeshProgram, flatten, mesh_program
from lowtide.frameworks.jax.flat.program import FlatProgram, run_program
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import jaxpr_as_fun, keeps_barriers, waits_for_loops
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_program
from lowtide.frameworks.jax.scans.bodies import with_planned_bodies
from lowtide.frameworks.jax.scans.chunks import in_chunks
from lowtide.frameworks.jax.scans.pairs import disjoint_pairs
from lowtide.frameworks.jax.scans.saving import SavingProgram, saving_program

WINDOW = 4
"""Runs that XLA may reorder in a held order."""
OTHER_WINDOWS = (2, 8)
_SEGMENTS = (2, 3, 4, 5, 6, 8, 10, 12, 16)
_MAX_SEGMENT_PLANS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionForm:
    name: str
    translation: JaxTranslation
    mesh: MeshProgram | None
    written: Flat | None = None

    @property
    def peak_bytes(self) -> int:
        graph = self.translation.graph
        return only_figure(simulate(graph, Plan.baseline(graph)).peak_bytes)

    def unplanned(self) -> Flat:
        if self.written is not None:
            return self.written
        return self._on_mesh(lambda *leaves: run_program(self.translation.program, leaves))

    def following(self, runs: Sequence[OpId], window: int | None = None, *, barriers: bool = False) -> Flat:
        return self._on_mesh(lambda *leaves: run_plan(self.translation, runs, leaves, window, barriers=barriers))

    def _on_mesh(self, flat: Flat) -> Flat:
        return flat if self.mesh is None else self.mesh.around(flat)


@dataclass(frozen=True, slots=True)
class RunOrder:
    name: str = ""
    runs: tuple[OpId, ...] | None = None
    window: int | None = None
    """None leaves the order to XLA."""
    predicted_bytes: int | None = None
    result: Result | None = None
    barriers: bool = False

    def of(self, form: FunctionForm) -> Flat:
        return form.unplanned() if self.runs is None else form.following(self.runs, self.window, barriers=self.barriers)

    def with_first(self, form: FunctionForm, count: int) -> "RunOrder":
        """Return this order with the runs first that the first `count` results need."""
        if self.runs is None or form.mesh is not None:
            return self
        needed = needed_places(form.translation, self.runs, count)
        others = (place for place in range(len(self.runs)) if place not in set(needed))
        return replace(self, runs=tuple(self.runs[place] for place in (*needed, *others)))

    def held(self, window: int = WINDOW) -> "RunOrder":
        name = self.name.partition(", ")[0]
        return replace(self, name=f"{name}, held by {window}", window=window, barriers=False)


def unmodified_form(traced: TracedFunction) -> FunctionForm:
    return next(forms(traced))


def forms(traced: TracedFunction) -> Iterator[FunctionForm]:
    """Yield the forms: unmodified, largest scan in chunks, all scans in chunks, chunks that save least."""
    program = flatten(traced.jaxpr, traced.name, traced.donated, traced.platform)
    mesh = mesh_program(program)
    unmodified = _form("", program if mesh is None else mesh.inner, mesh)
    yield replace(unmodified, written=jaxpr_as_fun(traced.jaxpr))
    yield from _chunked_forms(unmodified, "")
    saving = saving_form(unmodified, 0)
    if saving is not None:
        yield from list(_chunked_forms(saving[0], " that save least"))[-1:]


def saving_form(form: FunctionForm, limit: int) -> tuple[FunctionForm, SavingProgram] | None:
    saving = saving_program(form.translation.program, limit)
    if saving is None:
        return None
    return _form(f"scans saving {format_bytes(saving.saved_bytes)}", saving.program, form.mesh), saving


def form_with_planned_bodies(form: FunctionForm, limit: int, window: int | None) -> FunctionForm | None:
    program = with_planned_bodies(form.translation.program, limit, window)
    if program is None:
        return None
    held = "" if window is None else f", held by {window}"
    name = ", ".join(filter(None, (form.name, f"bodies planned{held}")))
    return _form(name, program, form.mesh)


def planned_orders(result: Result, platform: str, only_held: bool = False) -> Iterator[RunOrder]:
    """Yield a plan's order, behind barriers and tied if it recomputes, and held.

    Barriers cost no time, ties copy values, holds do both and compile longest. Where holds make the device wait, only
    barriers are tried.
    """
    order = RunOrder("planned", tuple(result.plan.order().tolist()), None, only_figure(result.peak_bytes), result)
    if result.reruns and not only_held:
        if keeps_barriers(platform):
            yield replace(order, name="planned, behind barriers", barriers=True)
            if waits_for_loops(platform):
                return
        yield order
    yield order.held()


def segment_orders(form: FunctionForm) -> Iterator[RunOrder]:
    """Yield the checkpointing plans with the lowest peaks, behind barriers (else tied) and held."""
    graph, platform = form.translation.graph, form.translation.program.platform
    orders: list[RunOrder] = []
    for segments in _SEGMENTS:
        plan = segment_plan(graph, n_segments=segments)
        peak = only_figure(simulate(graph, plan).peak_bytes)
        runs = tuple(plan.order().tolist())
        orders.append(RunOrder(f"in {segments} segments", runs, None, peak, barriers=keeps_barriers(platform)))
    for order in sorted(orders, key=lambda order: order.predicted_bytes or 0)[:_MAX_SEGMENT_PLANS]:
        yield order
        if not waits_for_loops(platform):
            yield order.held()


def only_figure(figures: Mapping[str, int]) -> int:
    (figure,) = figures.values()
    return figure


def _chunked_forms(form: FunctionForm, suffix: str) -> Iterator[FunctionForm]:
    program = form.translation.program
    pairs = disjoint_pairs(program)
    for count in dict.fromkeys(count for count in (1, len(pairs)) if 0 < count <= len(pairs)):
        name = f"scans in chunks{suffix}" if count > 1 else f"a scan in chunks{suffix}"
        try:
            chunked = in_chunks(program, pairs[:count])
        except NameError:  # JAX traces a collective only inside its mesh
            return
        yield _form(name, chunked, form.mesh)


def _form(name: str, program: FlatProgram, mesh: MeshProgram | None) -> FunctionForm:
    return FunctionForm(name=name, translation=read_program(program, "temporaries"), mesh=mesh)
