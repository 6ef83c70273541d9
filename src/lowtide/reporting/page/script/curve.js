"use strict";
/* Memory against time */

function curveChart() {
  const curve = facts.frontier;
  $("curve-part").hidden = !curve || curve.points.length === 0;
  if ($("curve-part").hidden) return;
  const holder = $("curve");
  const points = curve.points.map((point, k) => [point.peak_bytes / UNIT, (100 * point.extra_cost) / (curve.base_cost || 1),
    k === curve.knee]).sort((one, other) => one[0] - other[0]);
  const chart = new uPlot({ width: holder.clientWidth - 6, height: 260, legend: { show: false },
    scales: { x: { time: false } },
    axes: axes("extra time, %").map((axis, k) => (k ? axis : { ...axis, label: `peak, ${UNIT_NAME}` })),
    series: [{}, { stroke: () => ink("--accent"), width: 2, points: { show: true, size: 8 } },
      { stroke: () => ink("--bad"), width: 2, paths: () => null, points: { show: true, size: 18, fill: "transparent" } }] },
  [points.map((point) => point[0]), points.map((point) => point[1]), points.map((point) => (point[2] ? point[1] : null))], holder);
  chart.root.dataset.own = "curve";
  const rows = curve.points.map((point, k) => [[bytes(point.budget_bytes), "n"], [bytes(point.peak_bytes), "n"],
    [share(point.extra_cost, curve.base_cost), "n"], [point.status, ""], [k === curve.knee ? "the knee" : "", ""]]);
  $("curve-note").textContent = points.some((point) => point[2])
    ? "The ring marks the knee: below it, each byte saved costs much more time." : "";
  $("curve-table").replaceChildren(table(["budget", "peak", "extra time", "status", ""], rows));
}
