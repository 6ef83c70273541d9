"""The table of `fits` for a training step: sizes, the techniques with which each fits, and the largest ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lowtide.api.targets import Target
from lowtide.core.progress import Report
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.graph.resized import N_SAMPLES, have_equal_structure, resized
from lowtide.engine.offload import Host
from lowtide.engine.offload.state_in_graph import state_on_host
from lowtide.engine.offload.updates import UpdatePlace
from lowtide.engine.plan import Plan
from lowtide.engine.planning.program import ALL
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.model import HostedModel
from lowtide.frameworks.training_steps import Step
from lowtide.reporting.fitting import fit_device
from lowtide.reporting.fitting_sizes import LEVELS, Axis, Level, SizeFit

_MOST_ROWS = 12
"""Most sizes in a table: batch sizes from 1 to 2048."""
_TOKENS = 64
"""The step of sequence lengths."""
_SEARCHED: tuple[Level, ...] = ("unchanged", "recompute", "offload")
"""Levels whose largest size is searched."""
_STEPS_OF_OFFLOAD = 8
"""Plans with offload take long near the limit, so they are searched in steps of an eighth."""

Capture = Callable[[int], Step]
"""Captures the step of a size."""


class Captures:
    """The graphs of one training step by size.

    The first sizes are captured. Once three captures have the same structure, graphs of other sizes are computed from
    them, which takes milliseconds. `check` captures one of these sizes as well.
    """

    def __init__(self, capture: Capture, first: tuple[int, Step] | None = None) -> None:
        self._capture = capture
        self._steps: dict[int, Step] = {} if first is None else dict([first])
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


class StepWithHost(HostedModel):
    """The graph of a training step with a host, which can hold its optimizer state and update parameters."""

    def __init__(self, model: GraphModel, host: Host) -> None:
        super().__init__(model, host)
        self._host = host
        self._with_state: dict[tuple[int, UpdatePlace], GraphModel | None] = {}

    def with_state_on_host(self, share: int, place: UpdatePlace = "device") -> GraphModel | None:
        """Return the step with `share` eighths of its state on its host; None if it has no such state or updates."""
        key = (share, place)
        if key not in self._with_state:
            moved = state_on_host(self.graph, share / ALL, self._host, place)
            self._with_state[key] = None if moved is None else GraphModel(moved)
        return self._with_state[key]


class SizeSearch:
    """Fits of a training step by size, each planned once."""

    def __init__(self, captures: Captures, target: Target, settings: PlanSettings, report: Report) -> None:
        self._captures, self._target, self._settings, self._report = captures, target, settings, report
        self._fits: dict[tuple[int, Level], SizeFit] = {}

    def rows(self, axis: Axis, sizes: Sequence[int]) -> list[SizeFit]:
        """Return the fits of sizes in ascending order, up to the first that does not fit.

        The largest one that fits is captured. If it differs from its computed graph, all sizes are captured.
        """
        rows: list[SizeFit] = []
        for size in sizes:
            self._report(f"planning {axis} {size}")
            rows.append(self.fit(size))
            if rows[-1].level is None or rows[-1].fit.result.status == "interrupted":
                break
        fitting = [row.size for row in rows if row.level is not None]
        if fitting and not self._captures.is_right(fitting[-1]):
            self._fits.clear()
            return self.rows(axis, sizes)
        return rows

    def fit(self, size: int, most: Level = "offload") -> SizeFit:
        """Return the fit of a size with techniques up to a level."""
        key = (size, most)
        if key not in self._fits:
            model = GraphModel(self._captures.graph(size))
            host = self._settings.host if most == "offload" else None
            settings = replace(self._settings, host=host)
            opened = model if host is None else StepWithHost(model, host)
            fit = fit_device(opened, self._target.memory_bytes, settings, self._report, opened.planned)
            self._fits[key] = SizeFit(size=size, fit=fit)
        return self._fits[key]

    def largest(self, rows: Sequence[SizeFit], unit: int) -> dict[Level, int]:
        """Return the largest multiple of a unit found with techniques up to each level, between the sizes of rows."""
        found: dict[Level, int] = {}
        for level in _SEARCHED:
            fitting = [row.size for row in rows if row.level in _up_to(level)]
            beyond = [row.size for row in rows if row.size > max(fitting, default=0)]
            if not fitting:
                continue
            step = unit if level != "offload" else max(unit, max(fitting) // _STEPS_OF_OFFLOAD // unit * unit)
            largest = self._between(max(fitting), min(beyond), step, level) if beyond else max(fitting)
            if largest > max(found.values(), default=0):
                found[level] = largest
        return found

    def _between(self, fits: int, misses: int, unit: int, level: Level) -> int:
        """Return the largest multiple of a unit found from a size that fits to one that does not, by bisection."""
        while misses - fits > unit:
            middle = max((fits + misses) // 2 // unit * unit, fits + unit)
            if middle >= misses:
                break
            self._report(f"planning size {middle}")
            fits, misses = (middle, misses) if self._fits_within(middle, level) else (fits, middle)
        return fits

    def _fits_within(self, size: int, level: Level) -> bool:
        """Return whether a size fits with techniques up to a level."""
        if level != "unchanged":
            return self.fit(size, level).level is not None
        graph = self._captures.graph(size)
        space = graph.spaces[0].name
        peak = simulate(graph, Plan.baseline(graph)).peak_bytes[space]
        return int(peak) + graph.persistent_bytes()[space] <= self._target.memory_bytes


def _up_to(level: Level) -> Sequence[Level]:
    return LEVELS[: LEVELS.index(level) + 1]


def sizes_of(axis: Axis, own: int, longest: int | None) -> tuple[list[int], int]:
    """Return the sizes of a table, that of the program included, and the step between the sizes of a search."""
    if axis == "batch":
        return sorted({2**power for power in range(_MOST_ROWS)} | {own}), 1
    unit = _TOKENS if longest is None or longest >= 2 * _TOKENS else 1
    sizes = [unit * 2**power for power in range(_MOST_ROWS)]
    if longest is None:
        return sizes, unit
    return sorted({each for each in sizes if each <= longest} | {longest}), unit
