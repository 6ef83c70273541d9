"use strict";
/* Shared by all charts: axes, view, keys */

function axes(yLabel) {
  const common = { stroke: () => ink("--ink"), grid: { stroke: () => ink("--line"), width: 1 },
    ticks: { stroke: () => ink("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    labelSize: 22 };
  return [
    { ...common, label: "run number", values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
    { ...common, label: yLabel, size: 76, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
  ];
}

let moving = false;
function together(chart, key) {
  if (key !== "x" || moving) return;
  moving = true;
  view = [chart.scales.x.min, chart.scales.x.max];
  for (const other of charts) if (other !== chart) other.setScale("x", { min: view[0], max: view[1] });
  moving = false;
}

function draw(holder, options, data) {
  const chart = new uPlot({ width: holder.clientWidth - 6, height: 360, cursor: { drag: { x: true, y: false } },
    legend: { show: false }, ...options }, data, holder);
  holder.onkeydown = (event) => {
    if (steer(chart, event.key, event.shiftKey)) event.preventDefault();
  };
  charts.push(chart);
  return chart;
}

function steer(chart, key, strides) {
  const { min, max } = chart.scales.x;
  const [first, last] = [0, runsIn()];
  const width = max - min;
  const to = (low, high) => chart.setScale("x", { min: Math.max(first, low), max: Math.min(last, high) });
  const middle = (min + max) / 2;
  if (key === "+" || key === "=") to(middle - width / 4, middle + width / 4);
  else if (key === "-") to(middle - width, middle + width);
  else if (key === "0" || key === "Escape") to(first, last);
  else if (strides && (key === "ArrowLeft" || key === "ArrowRight")) {
    const by = Math.max(first - min, Math.min(last - max, (key === "ArrowLeft" ? -width : width) / 4));
    to(min + by, max + by);
  } else if (key === "ArrowLeft" || key === "ArrowRight") {
    const at = chart.cursor.left < 0 ? middle : chart.posToVal(chart.cursor.left, "x");
    const next = Math.max(min, Math.min(max, at + (key === "ArrowLeft" ? -1 : 1) * Math.max(pictures.spaces[space].runs_per_column,
      width / 200)));
    chart.setCursor({ left: chart.valToPos(next, "x"), top: chart.bbox.height / devicePixelRatio / 2 });
  } else return false;
  return true;
}
