"""Measure the user's call, the unmodified program, and the planned one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.planning.measured import Agreement, Measurement
from lowtide.frameworks.torch.measure.compare_peak import warn_of_higher_peak
from lowtide.frameworks.torch.measure.measure_captured import (
    check_real,
    compare_with_plain,
    measure_in_turn,
    restored_state,
)
from lowtide.frameworks.torch.measure.step_times import TIMED_CALLS, step_times
from lowtide.frameworks.torch.reading.captured import Captured


@dataclass(frozen=True, slots=True, kw_only=True)
class ToMeasure:
    captured: Captured
    unmodified: Callable[..., Any]
    planned: Callable[..., Any]
    graph: Graph
    predicted_bytes: int
    may_round: bool
    has_host: bool

    def measure(self, timed_calls: int = TIMED_CALLS) -> Measurement:
        """Measure all three from the same state; warn of a peak more than 2 % above the prediction."""
        captured = self.captured
        programs = self.unmodified, self.planned
        with restored_state(captured, check_real(captured.example_args, captured.example_kwargs)) as restore:
            before, after, original = measure_in_turn(captured, [*programs, captured.run_original], restore)
            times = step_times(captured, self.planned, restore, timed_calls)
        runs = zip(programs, (before, after), strict=True)
        differing = [program for program, run in runs if run.outputs_digest != original.outputs_digest]
        if self.graph.spaces[0].name == str(after.device):
            warn_of_higher_peak(self.graph, after.peak_bytes, self.predicted_bytes, stacklevel=3)
        agreement = Agreement(outputs_equal=True)
        if differing:
            agreement = compare_with_plain(captured, differing, may_round=self.may_round)
        return Measurement.of(
            agreement,
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            original_bytes=original.peak_bytes,
            host_bytes=after.host_peak_bytes if self.has_host else None,
            times=times,
            predicted_bytes=self.predicted_bytes,
        )
