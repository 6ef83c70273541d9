"""The table of `fits` for a training step: sizes, the techniques with which each fits, and the largest ones."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lowtide.api.step_captures import Captures, SizedStep
from lowtide.api.targets import Target
from lowtide.core.progress import Report
from lowtide.core.techniques import Techniques
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fitting import fit_device
from lowtide.reporting.fitting_sizes import LEVELS, Axis, Level, SizeFit, techniques_of

_MOST_ROWS = 12
"""Most sizes in a table: batch sizes from 1 to 2048."""
_TOKENS = 64
"""The step of sequence lengths."""
_SEARCHED: tuple[Level, ...] = ("unchanged", "recompute", "chunks", "offload")
"""Levels whose largest size is searched."""
_IN_STEPS: tuple[Level, ...] = ("chunks", "offload")
_STEPS = 8
"""Plans with chunks or offload take long near the limit, so they are searched in steps of an eighth."""


class SizeSearch:
    """Fits of a training step by size, each planned once."""

    def __init__(
        self,
        captures: Captures,
        target: Target,
        settings: PlanSettings,
        report: Report,
        allow: Techniques | None = None,
    ) -> None:
        """Search with the techniques in `allow`, see `fit_device`."""
        self._captures, self._target, self._settings, self._report = captures, target, settings, report
        self._allow = allow
        self._steps: dict[int, SizedStep] = {}
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
            self._steps.clear()
            return self.rows(axis, sizes)
        return rows

    def fit(self, size: int, most: Level = LEVELS[-1]) -> SizeFit:
        """Return the fit of a size with techniques up to a level."""
        key = (size, most)
        if key not in self._fits:
            if size not in self._steps:
                in_chunks = partial(self._captures.graph_in_chunks, size)
                self._steps[size] = SizedStep(self._captures.graph(size), in_chunks, self._settings.host)
            step = self._steps[size]
            memory, allow = self._target.memory_bytes, self._allowed(most)
            fit = fit_device(step, memory, self._settings, self._report, step.planned, allow=allow)
            self._fits[key] = SizeFit(size=size, fit=fit)
        return self._fits[key]

    def _allowed(self, most: Level) -> Techniques | None:
        if most == LEVELS[-1]:
            return self._allow
        return techniques_of(most) if self._allow is None else techniques_of(most) & self._allow

    def largest(self, rows: Sequence[SizeFit], unit: int) -> dict[Level, int]:
        """Return the largest multiple of a unit found with techniques up to each level, between the sizes of rows."""
        found: dict[Level, int] = {}
        for level in _SEARCHED:
            fitting = [row.size for row in rows if row.level in _up_to(level)]
            beyond = [row.size for row in rows if row.size > max(fitting, default=0)]
            if not fitting:
                continue
            step = unit if level not in _IN_STEPS else max(unit, max(fitting) // _STEPS // unit * unit)
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
