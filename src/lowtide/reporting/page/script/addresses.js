"use strict";
/* Addresses of buffers */

function addressChart() {
  const here = pictures.spaces[space];
  const rows = here.rectangles;
  $("addresses-part").hidden = !rows || rows.first.length === 0;
  if ($("addresses-part").hidden) return;
  const arena = Math.max(facts.arena_bytes[spaceName()] || 0, 1);
  const note = rows.shaded ? `The ${rows.first.length.toLocaleString("en")} largest of ${(rows.first.length + rows.shaded)
    .toLocaleString("en")} rectangles are drawn one by one; they are ${percent(rows.drawn_share)} of all bytes `
    + `times runs. The other ${rows.shaded.toLocaleString("en")} are the gray shade, on a grid of ${rows.shade.columns} by ${
      rows.shade.rows}.` : `All ${rows.first.length.toLocaleString("en")} residencies are drawn.`;
  $("addresses-note").textContent = note;
  draw($("addresses"), {
    scales: { x: { time: false, range: (_, low, high) => [Math.max(0, low), Math.min(runsIn(), high)] },
      y: { range: [0, arena / UNIT] } },
    axes: axes(`address, ${UNIT_NAME}`), series: [{}, { stroke: "transparent", points: { show: false } }],
    hooks: { setScale: [together], draw: [(chart) => paintRectangles(chart, rows)],
      setCursor: [(chart) => readAddress(chart, rows)] },
  }, [[0, runsIn()], [0, 0]]);
  readAddress(charts.at(-1), rows);
}

function paintRectangles(chart, rows) {
  const paint = chart.ctx;
  const { left, top, width, height } = chart.bbox;
  const { x, y } = chart.scales;
  const across = width / (x.max - x.min);
  const up = height / (y.max - y.min) / UNIT;
  paint.save();
  paint.beginPath();
  paint.rect(left, top, width, height);
  paint.clip();
  if (rows.shade) {
    paint.fillStyle = ink("--shade");
    const cell = runsIn() / rows.shade.columns;
    const row = height / rows.shade.rows;
    rows.shade.row.forEach((at, k) => {
      paint.fillRect(left + (rows.shade.start[k] * cell - x.min) * across, top + height - (at + 1) * row,
        rows.shade.length[k] * cell * across, row);
    });
  }
  const edge = ink("--back");
  paint.lineWidth = devicePixelRatio * 0.6;
  paint.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  paint.textBaseline = "middle";
  paint.textAlign = "left";
  const named = [];
  for (let part = 0; part < hatched.length; part++) {
    paint.fillStyle = hatched[part];
    paint.strokeStyle = edge;
    for (let k = 0; k < rows.first.length; k++) {
      if (rows.role[k] !== part || rows.last[k] < x.min || rows.first[k] > x.max) continue;
      const l = left + (rows.first[k] - x.min) * across;
      const w = Math.max((rows.last[k] - rows.first[k]) * across, 0.5);
      const h = Math.max(rows.size[k] * up, 0.5);
      const t = top + height - rows.offset[k] * up - h;
      paint.fillRect(l, t, w, h);
      if (w > 3 && h > 3) paint.strokeRect(l, t, w, h);
      if (h > 13 * devicePixelRatio && w > 30 * devicePixelRatio) named.push([k, l, t, w, h]);
    }
  }
  for (const [k, l, t, w, h] of named) {
    const name = rows.name[k];
    const from = Math.max(l, left);
    const room = Math.min(l + w, left + width) - from - 8;
    const wide = paint.measureText(name).width;
    if (wide > room) continue;
    paint.fillStyle = dark ? "#e9eef2dd" : "#ffffffcc";
    paint.fillRect(from + 3, t + h / 2 - 7 * devicePixelRatio, wide + 4, 14 * devicePixelRatio);
    paint.fillStyle = "#101214";
    paint.fillText(name, from + 5, t + h / 2);
  }
  paint.restore();
}

function readAddress(chart, rows) {
  const out = $("addresses-readout");
  if (chart.cursor.left < 0) {
    out.textContent = "Point at a rectangle to see its buffer.";
    return;
  }
  const run = chart.posToVal(chart.cursor.left, "x");
  const address = chart.posToVal(chart.cursor.top, "y") * UNIT;
  const found = rows.first.findIndex((first, k) => first <= run && run < rows.last[k] && rows.offset[k] <= address
    && address < rows.offset[k] + rows.size[k]);
  out.textContent = found < 0 ? `run ${Math.floor(run)}, address ${bytes(address)}: no drawn buffer`
    : `${rows.name[found]}${rows.op[found] ? `, made by ${place(rows.op[found])}` : ""}: ${bytes(rows.size[found])} at ${rows.offset[found]
      .toLocaleString("en")}, runs ${rows.first[found]} to ${rows.last[found]}, ${pictures.parts[rows.role[found]]}`;
}
