"use strict";
/* Stacked chart of memory over runs, with legend */

const live = (series) => series.parts[0].map((_, at) => series.parts.slice(0, -2).reduce((sum, part) => sum + part[at], 0));

function memoryChart() {
  const here = pictures.spaces[space];
  const grain = here.runs_per_column;
  const stacked = here[shown];
  const other = here[shown === "after" ? "before" : "after"];
  const columns = Math.max(stacked.parts[0].length, other.parts[0].length);
  const pad = (values) => Array.from({ length: columns + 1 },
    (_, at) => (at < values.length ? values[at] : at === values.length ? values[at - 1] : null));
  const visible = pictures.parts.map((_, part) => part).filter((part) => !hidden.has(part)
    && stacked.parts[part].some((value) => value > 0));
  const heights = [];
  let below = stacked.parts[0].map(() => 0);
  for (const part of visible) {
    below = below.map((value, at) => value + stacked.parts[part][at]);
    heights.push([part, below.map((value) => value / UNIT)]);
  }
  heights.reverse();
  const x = Array.from({ length: columns + 1 }, (_, at) => Math.min(at * grain, runsIn()));
  const step = uPlot.paths.stepped({ align: 1 });
  const series = [{}, ...heights.map(([part]) => ({ label: pictures.parts[part], stroke: () => ink("--ink"), width: 0.4,
    fill: () => hatched[part], paths: step, points: { show: false } })),
    { label: "other", stroke: () => ink("--ink"), width: 1.6, dash: [5, 3], paths: step, points: { show: false } }];
  const otherLive = live(other).map((value) => value / UNIT);
  const most = Math.max(1e-6, ...otherLive, ...(heights.length ? heights[0][1] : []), ...limit().map(([, level]) => level / UNIT));
  const holder = $("memory");
  draw(holder, {
    scales: { x: { time: false, range: (_, low, high) => [Math.max(0, low), Math.min(runsIn(), high)] },
      y: { range: [0, most * 1.06] } },
    axes: axes(UNIT_NAME), series,
    hooks: { setScale: [together], draw: [levels], setCursor: [(chart) => readMemory(chart.cursor.left < 0 ? null
      : Math.floor(chart.posToVal(chart.cursor.left, "x") / grain))] },
  }, [x, ...heights.map(([, values]) => pad(values)), pad(otherLive)]);
  readMemory(null);
}

function levels(chart) {
  const paint = chart.ctx;
  const { left, top, width } = chart.bbox;
  paint.save();
  paint.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  const drawn = limit().map(([name, level]) => [name, level, chart.valToPos(level / UNIT, "y", true),
    name === "budget" ? ink("--bad") : ink("--good")]);
  for (const [name, , y, color] of drawn) {
    paint.strokeStyle = color;
    paint.setLineDash(name === "budget" ? [10, 4] : [2, 3]);
    paint.lineWidth = 2 * devicePixelRatio;
    paint.beginPath();
    paint.moveTo(left, y);
    paint.lineTo(left + width, y);
    paint.stroke();
  }
  paint.setLineDash([]);
  drawn.forEach(([name, level, y, color], number) => { // over all lines, so that none strikes a caption through
    paint.textAlign = number ? "right" : "left";
    const caption = `${name} ${bytes(level)}`;
    const at = number ? left + width - 6 : left + 6;
    const wide = paint.measureText(caption).width;
    const low = Math.max(top + 16 * devicePixelRatio, y - 4 * devicePixelRatio);
    paint.fillStyle = ink("--back");
    paint.fillRect(number ? at - wide - 3 : at - 3, low - 12 * devicePixelRatio, wide + 6, 15 * devicePixelRatio);
    paint.fillStyle = color;
    paint.fillText(caption, at, low);
  });
  paint.restore();
}

function readMemory(column) {
  const here = pictures.spaces[space];
  const series = here[shown];
  const out = $("memory-readout");
  if (column === null || column < 0 || column >= series.parts[0].length) {
    out.textContent = `Point at the picture, or focus it and use the keys. The dashed line is the memory ${
      shown === "after" ? "before" : "after"}.`;
    return;
  }
  const grain = here.runs_per_column;
  const where = grain === 1 ? `run ${column}` : `largest of runs ${column * grain} to ${column * grain + grain - 1}`;
  const parts = pictures.parts.map((name, part) => [name, series.parts[part][column]]).filter(([, value]) => value > 0);
  const total = parts.reduce((sum, [name, value]) => sum + (name === "padding" || name === "fragmentation" ? 0 : value), 0);
  out.textContent = `${where}, ${place(series.ops[column]) || "before the first op"}: ${bytes(total)} live; `
    + parts.map(([name, value]) => `${name} ${bytes(value)}`).join(", ");
}

function legend() {
  const here = pictures.spaces[space];
  const items = pictures.parts.map((name, part) => [name, part]).filter(([, part]) => ["before", "after"]
    .some((which) => here[which].parts[part].some((value) => value > 0)));
  $("legend").replaceChildren(...items.map(([name, part]) => {
    const swatch = make("canvas", { width: 56, height: 28 });
    const paint = swatch.getContext("2d");
    paint.fillStyle = paint.createPattern(tile(part), "repeat");
    paint.fillRect(0, 0, 56, 28);
    const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(part)) }, swatch, name);
    button.onclick = () => {
      hidden.has(part) ? hidden.delete(part) : hidden.add(part);
      refresh();
    };
    return make("li", {}, button);
  }));
}
