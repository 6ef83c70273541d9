"""The table of `fits` for a training step, and its largest sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lowtide.api.step_captures import Captures, SizedStep
from lowtide.api.targets import Target
from lowtide.core.progress import Report
from lowtide.core.techniques import ROUNDING, Techniques
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.first_fit import FirstFit, first_fit
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fitting import fit_device, ladder_for
from lowtide.reporting.fitting_sizes import LEVELS, Axis, Level, SizeFit, level_of

_MOST_ROWS = 12
"""Most sizes in a table: batch sizes from 1 to 2048."""
_TOKENS = 64
"""The step of sequence lengths."""
_SEARCHED: tuple[Level, ...] = ("unchanged", "recompute", "chunks", "offload")
_STEPS: Mapping[Level, int] = {"chunks": 8, "offload": 4}
"""These plans take long near the limit, so they are searched in steps of a part of the size."""


_NOT_TRIED: Techniques = frozenset()


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
        self._captures, self.target, self.settings, self._report = captures, target, settings, report
        self._allow = allow
        self._steps: dict[int, SizedStep] = {}
        self._fits: dict[tuple[int, Level | None], SizeFit] = {}
        self._techniques: dict[tuple[int, Level], Techniques | None] = {}

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
            self._techniques.clear()
            self._steps.clear()
            return self.rows(axis, sizes)
        return rows

    def fit(self, size: int, level: Level | None = None) -> SizeFit:
        """Return the fit of a size with a level's techniques, by default the first level with which it fits."""
        key = (size, level)
        if key not in self._fits:
            step = self._step(size)
            ladder = self._ladder(step, level)
            fit = fit_device(
                step,
                self.target.usable_bytes,
                self.settings,
                self._report,
                plan=partial(self._planned, step),
                plan_updates=step.without_chunks().planned,
                ladder=ladder,
            )
            self._fits[key] = SizeFit(size=size, fit=fit)
        return self._fits[key]

    def _planned(self, step: SizedStep, settings: PlanSettings, progress: Report | None) -> Result:
        """Return the best plan; its long search with offload begins only if a plan fits."""
        if "offload" in settings.techniques:
            found = first_fit(step, settings, progress)
            if found.missed is not None:
                return found.missed
        return step.planned(settings, progress)

    def _first_fit(self, step: SizedStep, techniques: Techniques, *, in_chunks_only: bool) -> FirstFit:
        settings = replace(self.settings, budget=self.target.usable_bytes, techniques=techniques)
        return first_fit(step, settings, self._report, in_chunks_only=in_chunks_only)

    def _step(self, size: int) -> SizedStep:
        if size not in self._steps:
            in_chunks, graph = partial(self._captures.graph_in_chunks, size), self._captures.graph(size)
            moves = self._captures.moves_parameters
            self._steps[size] = SizedStep(graph, in_chunks, self.settings.host, moves_parameters=moves)
        return self._steps[size]

    def _ladder(self, step: SizedStep, level: Level | None) -> list[Techniques]:
        ladder = ladder_for(step, self.settings, self._allow)
        return [rung for rung in ladder if level in (None, level_of(rung, in_chunks=ROUNDING in rung))]

    def largest(self, rows: Sequence[SizeFit], unit: int) -> dict[Level, int]:
        """Return the largest multiple of a unit found per level, between the sizes of rows."""
        found: dict[Level, int] = {}
        for level in _SEARCHED:
            fitting = [row.size for row in rows if row.level in LEVELS[: LEVELS.index(level) + 1]]
            if not fitting or not self._ladder(self._step(fitting[0]), level):
                continue
            known = max([*fitting, *found.values()])
            beyond = [row.size for row in rows if row.size > known]
            step = max(unit, known // _STEPS.get(level, known) // unit * unit)
            largest = self._between(known, min(beyond), step, level) if beyond else known
            if largest > max(found.values(), default=0):
                found[level] = largest
        return found

    def _between(self, fits: int, misses: int, unit: int, level: Level) -> int:
        while misses - fits > unit:
            middle = max((fits + misses) // 2 // unit * unit, fits + unit)
            if middle >= misses:
                break
            self._report(f"planning size {middle}")
            fits, misses = (middle, misses) if self._fits_within(middle, level) else (fits, middle)
        return fits

    def _fits_within(self, size: int, level: Level) -> bool:
        if level != "unchanged":
            return self.techniques(size, level) is not None
        graph = self._captures.graph(size)
        space = graph.spaces[0].name
        peak = simulate(graph, Plan.baseline(graph)).peak_bytes[space]
        return int(peak) + graph.persistent_bytes()[space] <= self.target.usable_bytes

    def techniques(self, size: int, level: Level) -> Techniques | None:
        """Return a level's techniques with which a size fits, without rounding if bits are equal; or None.

        The search ends at the first plan that fits.
        """
        key = (size, level)
        if key not in self._techniques:
            step = self._step(size)
            self._techniques[key] = None
            missed_whole = level == "chunks" and self._techniques.get((size, "recompute"), _NOT_TRIED) is None
            for rung in self._ladder(step, level)[-1:]:  # allows all that the others do
                found = self._first_fit(step, rung, in_chunks_only=missed_whole)
                if found.fits:
                    self._techniques[key] = rung if found.rounds else rung - {ROUNDING}
        return self._techniques[key]


def sizes_of(axis: Axis, own: int, longest: int | None) -> tuple[list[int], int]:
    """Return the sizes of a table, including the program's, and the step between sizes of a search."""
    if axis == "batch":
        return sorted({2**power for power in range(_MOST_ROWS)} | {own}), 1
    unit = _TOKENS if longest is None or longest >= 2 * _TOKENS else 1
    sizes = [unit * 2**power for power in range(_MOST_ROWS)]
    if longest is None:
        return sizes, unit
    return sorted({each for each in sizes if each <= longest} | {longest}), unit
