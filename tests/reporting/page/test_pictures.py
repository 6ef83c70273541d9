"""The pictures of the page, as a real browser draws them, against the arrays of the plan."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.browser import find_browser
from lowtide import frontier, minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.live_ranges import live_ranges
from lowtide.engine.analysis.memory_over_time import Role, roles_of
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Addresses, Plan, StepKind
from lowtide.engine.timeline import play_timeline
from lowtide.reporting.export.placed import with_addresses
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.write import page
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.reporting.page.test_browser import visit

pytestmark = [pytest.mark.browser, pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")]

PIXEL = 1.5
"""Tolerance in pixels: borders are rounded, and a rectangle is at least half a pixel high and wide."""

LOOK = """
const seen = { errors: [], spaces: [] };
addEventListener("error", (event) => seen.errors.push(event.message));
const painted = [];
const fillRect = CanvasRenderingContext2D.prototype.fillRect;
CanvasRenderingContext2D.prototype.fillRect = function (...box) {
  if ($("addresses").contains(this.canvas) && this.fillStyle instanceof CanvasPattern) {
    painted.push([hatched.indexOf(this.fillStyle), ...box]);
  }
  fillRect.apply(this, box);
};
const chartIn = (id) => charts.find((each) => $(id).contains(each.root));
function heights(chart) {  // of each series in each column, from the filled paths
  const paint = chart.ctx;
  return chart.series.slice(1, -1).map((series, k) => chart.data[0].slice(0, -1).map((x, column) => {
    const value = chart.data[k + 1][column];
    const at = chart.valToPos(x + (chart.data[0][column + 1] - x) / 2, "x", true);
    const y = chart.valToPos(value, "y", true);
    const inside = (above) => paint.isPointInPath(series._paths.fill, at, y - above);
    return [value * UNIT, inside(-2), inside(2)];
  }));
}
function look(at) {
  if (at === pictures.spaces.length) {
    const rects = [...document.querySelectorAll("#streams rect")];
    seen.streams = { wide: $("streams").clientWidth, bars: rects.map((rect) => ["x", "y", "width"].map((key) =>
      Number(rect.getAttribute(key)))) };
    const curve = $("curve-part").hidden ? null : Array.from(document.querySelectorAll("#curve-table tbody tr"),
      (row) => row.children[1].textContent);
    seen.curve = curve;
    document.body.append("SEEN" + JSON.stringify(seen) + "END");
    return;
  }
  painted.length = 0;
  space = at;
  view = null;
  all();
  setTimeout(() => {
    const chart = chartIn("addresses");
    const memory = chartIn("memory");
    seen.spaces.push({
      painted: chart ? painted.map(([part, left, top, wide, high]) => [part, chart.posToVal(left, "x", true),
        chart.posToVal(left + wide, "x", true), chart.posToVal(top + high, "y", true) * UNIT,
        chart.posToVal(top, "y", true) * UNIT]) : [],
      across: chart ? (chart.scales.x.max - chart.scales.x.min) / chart.bbox.width : 0,
      up: chart ? (chart.scales.y.max - chart.scales.y.min) / chart.bbox.height * UNIT : 0,
      note: $("addresses-note").textContent,
      labels: memory.series.slice(1, -1).map((series) => series.label),
      heights: heights(memory), highest: memory.scales.y.max * UNIT,
    });
    look(at + 1);
  }, 50);
}
look(0);
"""


def training_step() -> Graph:
    """Return a step with buffers of every role: weights, activations, gradients, temporaries, inputs and outputs."""
    builder = GraphBuilder("step")
    size = 3 << 20
    weights = [builder.add_buffer(f"weight_{k}", size, Lifetime.PERSISTENT) for k in range(4)]
    saved = [builder.add_buffer("batch", size, Lifetime.INPUT)]
    for k, weight in enumerate(weights):
        inner = builder.add_buffer(f"inner_{k}", 2 * size)
        saved.append(builder.add_buffer(f"act_{k}", size))
        builder.add_op(f"mm_{k}", "mm", reads=[saved[k], weight], writes=[inner], cost=3.0)
        builder.add_op(f"relu_{k}", "relu", reads=[inner], writes=[saved[-1]], cost=1.0)
    gradient = builder.add_buffer("loss", 4 << 10, Lifetime.OUTPUT)
    builder.add_op("loss", "sum", reads=[saved[-1]], writes=[gradient], cost=1.0)
    for k in reversed(range(4)):
        back, of_weight = (builder.add_buffer(f"{name}_{k}", size) for name in ("grad", "of_weight"))
        builder.add_op(f"back_{k}", "mm", reads=[gradient, saved[k], weights[k]], writes=[back, of_weight], cost=6.0)
        builder.add_op(f"update_{k}", "sgd", reads=[of_weight], mutates=[weights[k]], ordered=True)
        gradient = back
    return builder.build()


def offloading() -> tuple[Graph, Plan]:
    """Return a plan with copies to another memory space, reruns and in-place pairs, with addresses."""
    graph = every_feature_graph()
    return graph, with_addresses(graph, every_feature_plan(graph))


def planned(budget: str | None) -> tuple[Graph, Plan]:
    """Return the step with its plan for a budget."""
    graph = training_step()
    techniques = {"reorder", "share"} | ({"recompute"} if budget else set())
    return graph, minimize(graph, budget=budget, allow=techniques, effort="fast").plan


@pytest.fixture(scope="module", params=["whole", "recomputed", "offloaded"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Plan, Any]:
    """Return a graph, a plan, and the pictures that the browser drew."""
    graph, plan = {"whole": lambda: planned(None), "recomputed": lambda: planned("70%"), "offloaded": offloading}[
        request.param
    ]()
    found = visit(page(Facts.of(graph, plan)), tmp_path_factory.mktemp("page"), LOOK)
    assert found["errors"] == []
    return graph, plan, found


def test_the_step_has_a_placed_buffer_of_every_role() -> None:
    graph, plan = planned(None)
    assert set(roles_of(graph)[Addresses.of(plan.addresses).table[:, 0]].tolist()) == set(Role)


def test_a_rectangle_is_drawn_for_each_placed_buffer_with_its_role_runs_and_bytes(
    seen: tuple[Graph, Plan, Any],
) -> None:
    graph, plan, found = seen
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    roles = roles_of(graph)
    for space, drawn in enumerate(found["spaces"]):
        placed: list[tuple[float, ...]] = []
        for each in Addresses.of(plan.addresses):
            first, last = (int((runs < step).sum()) for step in (each.first_step, each.last_step))
            size = int(graph.sizes[each.buffer])
            if each.space == space and size and first < last:
                placed.append((int(roles[each.buffer]), first, last, each.offset, each.offset + size))
        near = np.array([0, *[PIXEL * drawn["across"]] * 2, *[PIXEL * drawn["up"]] * 2])
        assert len(drawn["painted"]) == len(placed)
        for box, expected in zip(sorted(drawn["painted"]), sorted(placed), strict=True):
            assert (np.abs(np.subtract(box, expected)) <= near).all()
        if placed:
            assert drawn["note"] == f"All {len(placed)} residencies are drawn."


def test_the_stack_of_each_column_is_as_high_as_the_live_bytes_of_its_roles(seen: tuple[Graph, Plan, Any]) -> None:
    graph, plan, found = seen
    footprint, ranges, roles = simulate(graph, plan), live_ranges(graph, plan), roles_of(graph)
    run_of = np.concatenate([[0], np.maximum(np.cumsum(plan.kinds == StepKind.RUN) - 1, 0)])
    for space, drawn in enumerate(found["spaces"]):
        live = footprint.live[:, space]
        for column in range(int((plan.kinds == StepKind.RUN).sum())):
            (rows,) = np.nonzero(run_of == column)
            step = int(rows[live[rows].argmax()]) - 1
            held = (ranges.spaces == space) & (ranges.first_steps <= max(step, 0)) & (step < ranges.last_steps)
            buffers = ranges.buffers[held] if step >= 0 else np.flatnonzero(graph.counted_at_start)
            buffers = buffers[graph.sizes[buffers] > 0]
            stacked = {role.caption: int(graph.sizes[buffers[roles[buffers] == role]].sum()) for role in Role}
            if step < 0:
                stacked = {Role.INPUT.caption: int(live[0])}
            stacked["scratch"] = int(live[step + 1]) - sum(stacked.values())
            below = 0.0
            for label, heights in zip(reversed(drawn["labels"]), reversed(drawn["heights"]), strict=True):
                top, is_painted_below, is_painted_above = heights[column]
                if label in stacked:
                    assert top - below == pytest.approx(stacked.pop(label))
                if top > drawn["highest"] / 20:
                    assert is_painted_below
                    assert not is_painted_above
                below = top
            assert not any(stacked.values())


def test_bars_of_streams_are_as_long_as_their_steps_take(seen: tuple[Graph, Plan, Any]) -> None:
    graph, plan, found = seen
    if not found["streams"]["bars"]:
        return
    timeline = play_timeline(graph, plan, price(graph, "given"), collectives_apart=True)
    busy = np.flatnonzero((timeline.step_streams >= 0) & (timeline.durations > 0))
    scale = found["streams"]["wide"] / timeline.ends[busy].max()
    bars = sorted((round(left, 3), wide, row) for left, row, wide in found["streams"]["bars"])
    expected = sorted(
        zip((timeline.starts[busy] * scale).round(3), np.maximum(timeline.durations[busy] * scale, 0.4), strict=True)
    )
    assert len(bars) == len(expected)
    for (left, wide, _), placed in zip(bars, expected, strict=True):
        assert (left, wide) == pytest.approx(placed, abs=0.1)
    assert len({row for _, _, row in bars}) == len(set(timeline.step_streams[busy].tolist()))


def test_the_curve_has_a_point_for_each_budget(tmp_path: Path) -> None:
    graph = training_step()
    curve = frontier(graph, effort="fast")
    found = visit(page(Facts.of(graph, minimize(graph).plan, frontier=curve)), tmp_path, LOOK)
    assert found["curve"] == [f"{point.peak_bytes / 2**20:.1f} MiB" for point in curve.points]
