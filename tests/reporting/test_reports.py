"""What reports say agrees with what the library computes, as JSON and as text."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from lowtide import holders_at_peak, minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement, StepTimes
from lowtide.engine.schedule import make_candidate, scheduler_names
from lowtide.reporting.comparison import compare_orders
from lowtide.reporting.difference import difference
from lowtide.reporting.inspection import Inspection
from lowtide.reporting.measured import measured_to_json
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.figures import figures
from lowtide.reporting.page.text import to_text
from lowtide.reporting.planning import result_to_text
from lowtide.reporting.table import wrapped
from tests.examples import examples
from tests.strategies import graphs


def _as_read(fields: dict[str, Any]) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(fields))


def _hungry(n_buffers: int) -> Graph:
    builder = GraphBuilder("hungry")
    held = [builder.add_buffer(f"b{k}", 1024 * (k + 1)) for k in range(n_buffers)]
    for k, buffer in enumerate(held):
        builder.add_op(f"make{k}", "make", writes=[buffer])
    out = builder.add_buffer("out", 1024, Lifetime.OUTPUT)
    builder.add_op("sum", "sum", reads=held, writes=[out])
    builder.note("how long anything takes")
    return builder.build()


@given(graphs())
def test_an_inspection_shows_the_unmodified_program_and_its_holders(graph: Graph) -> None:
    fields = _as_read(Inspection.of(graph, in_place=True).to_json())
    baseline = Plan.baseline(graph)
    assert fields["peak_bytes"] == simulate(graph, baseline).peak_bytes
    assert fields["persistent_bytes"] == graph.persistent_bytes()
    assert [holder["name"] for holder in fields["holders"]] == [h.name for h in holders_at_peak(graph, baseline)]
    assert fields["unmodeled"] == list(graph.unmodeled)
    for space, peak in fields["peak_bytes"].items():
        assert fields["lower_bound_bytes"][space] <= peak <= fields["arena_bytes"][space]
        forced = [holder["size_bytes"] for holder in fields["bound_holders"] if holder["space"] == space]
        assert sum(forced) == fields["cut_bytes"][space] <= fields["lower_bound_bytes"][space]
        assert fields["bound_op"][space] is None or fields["bound_op"][space] in graph.op_names


@examples(30)
@given(graphs())
def test_a_comparison_has_the_peak_of_every_order_and_a_bound_below_all(graph: Graph) -> None:
    rows = [make_candidate(name, graph, in_place=True) for name in scheduler_names()]
    comparison = compare_orders(graph, effort="fast")
    fields = _as_read(comparison.to_json())
    assert [row["scheduler"] for row in fields["rows"]] == list(scheduler_names())
    for row, candidate in zip(fields["rows"], rows, strict=True):
        assert row["peak_bytes"] == simulate(graph, candidate.plan).peak_bytes
        assert all(fields["lower_bound_bytes"][space] <= peak for space, peak in row["peak_bytes"].items())
    assert all(name in comparison.to_text() for name in (*scheduler_names(), "lower bound"))


def test_a_comparison_begins_with_the_unmodified_program_that_its_picture_starts_from() -> None:
    """Its peak is above that of the order `given`, which also uses in-place pairs."""
    builder = GraphBuilder("pairs")
    held = [builder.add_buffer("x", 1024, Lifetime.INPUT)]
    for k in range(3):
        held.append(builder.add_buffer(f"y{k}", 2**20))
        builder.add_op(f"relu{k}", "relu", reads=[held[-2]], writes=[held[-1]], in_place=[(held[-2], held[-1])][:k])
    comparison = compare_orders(builder.build(), effort="fast")
    rows = [line.split()[:2] for line in comparison.to_text().splitlines()[2:4]]
    assert rows == [["unmodified", "2.0"], ["given", "1.0"]]
    page = comparison._repr_html_()
    assert "pairs needs 1.0 MiB at its peak instead of 2.0 MiB" in page
    assert page.index(">unmodified</th><td>2.0 MiB</td>") < page.index(">given</th><td>1.0 MiB</td>")


@examples(50)
@given(graphs())
def test_every_page_for_people_can_be_made_for_every_graph(graph: Graph) -> None:
    assert Inspection.of(graph, in_place=True).to_text().startswith(f"{graph.name}: {graph.n_ops} ops")
    assert result_to_text(minimize(graph)).startswith(f"{graph.name}: ")


def test_the_page_of_an_inspection_lists_the_largest_holders_and_sums_up_the_rest() -> None:
    lines = Inspection.of(_hungry(23), in_place=True).to_text().splitlines()
    assert lines[0] == "hungry: 24 ops, 24 buffers"
    assert "At the peak, largest first (24 in all):" in lines
    first = lines.index("At the peak, largest first (24 in all):") + 2
    assert lines[first].split() == ["23.0", "KiB", "b22", "make22", "sum"]
    assert "... and 4 more, 7,168 B in total" in lines
    assert lines[-2:] == ["Not modeled:", "  how long anything takes"]


def test_the_page_of_an_inspection_says_why_the_peak_cannot_be_lower() -> None:
    inspection = Inspection.of(_hungry(12), in_place=True)
    assert inspection.to_json()["bound_op"] == {"device": "sum"}
    lines = inspection.to_text().splitlines()
    first = lines.index("Why device cannot need less than 79.0 KiB (sum):")
    assert lines[first + 1] == "these must be live during this op:"
    assert lines[first + 2].split() == ["12.0", "KiB", "b11"]
    assert lines[first + 12].split() == ["4,096", "B", "in", "3", "more"]


def test_the_page_of_a_plan_says_why_a_budget_is_not_met() -> None:
    text = result_to_text(minimize(_hungry(2), budget="50%"))
    assert text.startswith(
        "hungry: misses the budget by 2,048 B (proven: no plan fits, even with recomputation); order "
    )
    assert "misses budget    op 'sum' alone needs 4,096 B" in text


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    result = minimize(_hungry(2))
    same = Measurement(before_bytes=4096, after_bytes=2048, outputs_equal=True)
    fields = _as_read(measured_to_json(same))
    assert (fields["measured_before_bytes"], fields["measured_after_bytes"]) == (4096, 2048)
    assert fields["outputs_equal"] is True
    assert "measured_original_bytes" not in fields
    text = result_to_text(result, same)
    assert "measured after   2,048 B" in text
    assert "yes (bit-equal)" in text
    other = Measurement(before_bytes=1, after_bytes=1, outputs_equal=False, original_bytes=3072)
    assert _as_read(measured_to_json(other))["measured_original_bytes"] == 3072
    text = result_to_text(result, other)
    assert "measured eager   3,072 B" in text
    assert "outputs equal    no" in text
    assert "host memory" not in text
    far = Measurement(before_bytes=1, after_bytes=1, outputs_equal=False, largest_difference=0.5)
    assert "outputs equal    no, they differ by at most 5.0e-01 of" in result_to_text(result, far)
    copied = Measurement(before_bytes=1, after_bytes=1, outputs_equal=True, host_bytes=1024)
    assert _as_read(measured_to_json(copied))["measured_host_bytes"] == 1024
    assert "host memory      1,024 B   (measured)" in result_to_text(result, copied)
    assert measured_to_json(None) == {}


def test_a_budget_that_is_met_is_said_with_its_bytes() -> None:
    assert "  budget           3,072 B: met" in result_to_text(minimize(_hungry(1), budget="3 KiB"))


@examples(30)
@given(graphs())
def test_the_lines_of_a_page_fit_eighty_columns(graph: Graph) -> None:
    result = minimize(graph)
    for page in (
        Inspection.of(graph, in_place=True).to_text(),
        compare_orders(graph, effort="fast").to_text(),
        result_to_text(result),
        difference(graph, Plan.baseline(graph), graph, result.plan).to_text(),
    ):
        assert max(map(len, wrapped(page))) <= 80


def test_long_names_are_cut_in_the_middle() -> None:
    builder = GraphBuilder("deep")
    held = [builder.add_buffer(f"model.{'very.' * 30}layer_{k}.activation", 1024) for k in range(8)]
    for k, buffer in enumerate(held):
        builder.add_op(f"{'deep.' * 20}op_{k}", f"kind_{k}", writes=[buffer])
    builder.add_op("sum", "sum", reads=held, writes=[builder.add_buffer("out", 4, Lifetime.OUTPUT)])
    lines = Inspection.of(builder.build(), in_place=True).to_text().splitlines()
    table = lines[lines.index("At the peak, largest first (9 in all):") + 2 :][:8]
    assert max(map(len, table)) <= 80
    assert all("model.very" in line and "activation" in line and "…" in line for line in table)


def test_extra_time_is_one_figure_that_includes_chunks_and_stands_beside_the_measured_one() -> None:
    planned = replace(minimize(_hungry(2)), base_cost=12.0, chunk_cost=2.0, extra_cost=1.0, reruns=3)
    assert planned.extra_time == pytest.approx(0.3)
    times = StepTimes.of([1.0, 0.9, 1.1], [1.2, 1.3, 1.4])
    measured = Measurement(before_bytes=2, after_bytes=1, outputs_equal=True, times=times)
    text = result_to_text(planned, measured)
    assert "extra time       +30.0 %   (chunks +20.0 %, 3 recomputed runs, " in text
    assert "measured time    1000.0 ms before, 1300.0 ms after: +30.0 % (predicted +30.0 %; steps " in text
    assert "without the plan differ by 10.0 % each way)" in text
    assert _as_read(measured_to_json(measured))["measured_extra_time"] == pytest.approx(0.3)
    facts = Facts.of(planned.graph, planned.plan, result=planned, measured=measured)
    assert figures(facts)["extra_time"] == planned.extra_time
    assert "extra time   +30.0 %" in to_text(facts)
