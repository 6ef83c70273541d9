"""Doubts about a plan: where figures of its runtime disagree with what was predicted."""

from dataclasses import replace

import pytest

from lowtide.engine.planning.measured import Measurement, RuntimePeaks, RuntimeRun
from lowtide.reporting.runtime import RuntimeReport

MEBI = 2**20


def _report(*, measured: int, growth: int, unmodeled: tuple[str, ...]) -> RuntimeReport:
    """Return a report of a program that should take 10 MiB, live and resident."""
    peaks = RuntimePeaks(
        by="its order",
        before_bytes=10 * MEBI,
        after_bytes=10 * MEBI,
        before_resident_bytes=10 * MEBI,
        after_resident_bytes=10 * MEBI,
        unmodeled=unmodeled,
    )
    run = RuntimeRun(by="the runtime", growth_bytes=growth * MEBI, predicted_bytes=10 * MEBI, seconds=1.0)
    return RuntimeReport(
        level=None,
        peaks=peaks,
        runs=(run,),
        unmodeled=(),
        planned_bytes=10 * MEBI,
        baseline_bytes=10 * MEBI,
        measured=Measurement(before_bytes=measured * MEBI, after_bytes=measured * MEBI, outputs_equal=True),
    )


@pytest.mark.parametrize(("measured", "growth", "count"), [(10, 10, 0), (12, 10, 2), (10, 12, 1), (8, 8, 3)])
def test_figures_that_disagree_are_doubts(measured: int, growth: int, count: int) -> None:
    """Of the program, of the plan, and of what runs add to resident memory."""
    assert len(_report(measured=measured, growth=growth, unmodeled=()).doubts) == count


@pytest.mark.parametrize(("measured", "growth", "count"), [(12, 12, 0), (8, 12, 2), (8, 8, 3)])
def test_what_is_not_modeled_may_add_to_what_is_measured(measured: int, growth: int, count: int) -> None:
    """It is said with the prediction; only a figure below that contradicts it."""
    report = _report(measured=measured, growth=growth, unmodeled=("sizes that only a run tells",))
    assert len(report.doubts) == count
    assert "not modeled: sizes that only a run tells" in report.to_text()


@pytest.mark.parametrize(("growth", "count"), [(10, 0), (11, 0), (13, 0), (15, 1), (8, 1)])
def test_growth_between_two_predictions_is_no_doubt(growth: int, count: int) -> None:
    """Addresses are the system's choice, so that the runtime's arena may grow to the one or to the other."""
    report = _report(measured=10, growth=growth, unmodeled=())
    runs = tuple(replace(run, otherwise_predicted_bytes=13 * MEBI) for run in report.runs)
    found = replace(report, runs=runs)
    assert len(found.doubts) == count
    assert "(10.0 MiB predicted, or 13.0 MiB depending on the arena's address)" in found.to_text()


@pytest.mark.parametrize(("promised", "count"), [(1, 0), (MEBI // 8, 1)])
def test_a_promised_gain_that_does_not_come_is_a_doubt_but_for_some_counters(promised: int, count: int) -> None:
    report = replace(_report(measured=10, growth=10, unmodeled=()), planned_bytes=10 * MEBI - promised)
    assert len(report.doubts) == count


@pytest.mark.parametrize(("session", "planned", "is_named"), [(8, 10, True), (10, 10, False), (8, 9, False)])
def test_the_session_is_named_where_no_order_helps_but_its_addresses_do(
    session: int, planned: int, is_named: bool
) -> None:
    found = replace(
        _report(measured=10, growth=10, unmodeled=()),
        runs=(),
        session_bytes=session * MEBI,
        planned_bytes=planned * MEBI,
    )
    assert ("lowtide.onnx.Session  8.0 MiB" in found.to_text()) == is_named
