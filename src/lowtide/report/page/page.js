"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const facts = report.figures;
const pictures = report.pictures;
const root = document.documentElement;
const $ = (id) => document.getElementById(id);

/* Words and figures */

function make(tag, properties = {}, ...children) {
  const { className, ...attributes } = properties;
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

function bytes(count) {
  if (count === null || count === undefined) return "-";
  const mebibytes = count / 2 ** 20;
  if (Math.abs(mebibytes) >= 0.095 || count === 0) {
    return `${mebibytes.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} MiB`;
  }
  return `${count.toLocaleString("en")} B`;
}

function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(2)} %` : "-";
}

/* Colors and hatches: every part has both, so that it can be read without color */

const LIGHT = ["#4e79a7", "#b07aa1", "#f28e2b", "#76b7b2", "#e15759", "#bab0ac", "#dcdcdc"];
const DARK = ["#6f9fd0", "#c79bbb", "#f2a65a", "#5f9f9a", "#ec7b7d", "#8d8682", "#4a4f55"];
const HATCHES = ["solid", "dots", "rising", "falling", "cross", "across", "upright"];
let dark = false;
let printing = false;

function ink(name) {
  return getComputedStyle(root).getPropertyValue(name).trim();
}

function tile(part) {
  const size = 8;
  const canvas = make("canvas", { width: size, height: size });
  const paint = canvas.getContext("2d");
  paint.fillStyle = (dark ? DARK : LIGHT)[part];
  paint.fillRect(0, 0, size, size);
  paint.strokeStyle = paint.fillStyle = dark ? "#ffffff66" : "#00000055";
  paint.beginPath();
  const line = (x1, y1, x2, y2) => { paint.moveTo(x1, y1); paint.lineTo(x2, y2); };
  const hatch = HATCHES[part];
  if (hatch === "dots") paint.fillRect(3, 3, 2, 2);
  if (hatch === "rising" || hatch === "cross") [-size, 0, size].forEach((x) => line(x, size, x + size, 0));
  if (hatch === "falling" || hatch === "cross") [-size, 0, size].forEach((x) => line(x, 0, x + size, size));
  if (hatch === "across") line(0, 4, size, 4);
  if (hatch === "upright") line(4, 0, 4, size);
  paint.stroke();
  return canvas;
}

let hatched = [];
function setTheme(isDark) {
  dark = isDark;
  root.dataset.theme = isDark ? "dark" : "light";
  const paint = document.createElement("canvas").getContext("2d");
  hatched = pictures.parts.map((_, part) => paint.createPattern(tile(part), "repeat"));
}

/* The state of the page */

let space = 0;
let shown = "after";
let hidden = new Set();
let charts = [];
let view = null;

const spaceName = () => pictures.spaces[space].name;
const limit = () => {
  const lines = [["lower bound", facts.lower_bound_bytes[spaceName()]], ["budget", facts.budget_bytes[spaceName()]]];
  return lines.filter(([, level]) => level !== null && level !== undefined && level > 0);
};

/* The headline */

function headline() {
  const name = spaceName();
  const before = facts.baseline_peak_bytes[name];
  const after = facts.peak_bytes[name];
  const budget = facts.budget_bytes[name];
  const met = budget === null || budget === undefined ? null : after <= budget;
  const box = (caption, value, note) => make("div", {}, make("span", { className: "faint" }, caption), make("b", {}, value),
    make("small", {}, note));
  const boxes = [
    box("before", bytes(before), "peak of the untouched program"),
    box("after", bytes(after), before ? `${(after / before).toFixed(3)} of before` : ""),
    box("lower bound", bytes(facts.lower_bound_bytes[name]), facts.bound_sentence),
    box("arena", bytes(facts.arena_bytes[name]), "with addresses"),
    box("persistent", bytes(facts.persistent_bytes[name]), "apart from all others"),
  ];
  if (met !== null) boxes.push(box("budget", bytes(budget), met ? "met" : "NOT met"));
  if (facts.measured) {
    const measured = facts.measured;
    boxes.push(box("measured", bytes(measured.after_bytes),
      `before ${bytes(measured.before_bytes)}; outputs ${measured.outputs_equal ? "equal, bit for bit" : "NOT equal"}`));
  }
  if (facts.extra_cost) boxes.push(box("extra time", share(facts.extra_cost, facts.base_cost), `priced by ${facts.costs}`));
  $("figures").replaceChildren(...boxes);
  $("verdict").textContent = `status: ${facts.status}${facts.shortfall ? `; budget NOT met: ${facts.shortfall}` : ""}`;
  $("verdict").className = facts.shortfall || met === false ? "bad" : facts.status === "optimal" ? "good" : "faint";
}

/* Charts */

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

const runsIn = () => Math.max(pictures.spaces[space].before.n_runs, pictures.spaces[space].after.n_runs, 1);
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
    heights.push([part, below.map((value) => value / 2 ** 20)]);
  }
  heights.reverse();
  const x = Array.from({ length: columns + 1 }, (_, at) => Math.min(at * grain, runsIn()));
  const step = uPlot.paths.stepped({ align: 1 });
  const series = [{}, ...heights.map(([part]) => ({ label: pictures.parts[part], stroke: () => ink("--ink"), width: 0.4,
    fill: () => hatched[part], paths: step, points: { show: false } })),
    { label: "other", stroke: () => ink("--ink"), width: 1.6, dash: [5, 3], paths: step, points: { show: false } }];
  const otherLive = live(other).map((value) => value / 2 ** 20);
  const most = Math.max(1e-6, ...otherLive, ...(heights.length ? heights[0][1] : []), ...limit().map(([, level]) => level / 2 ** 20));
  const holder = $("memory");
  draw(holder, {
    scales: { x: { time: false, range: (_, low, high) => [Math.max(0, low), Math.min(runsIn(), high)] },
      y: { range: [0, most * 1.06] } },
    axes: axes("MiB"), series,
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
  limit().forEach(([name, level], number) => {
    const y = chart.valToPos(level / 2 ** 20, "y", true);
    paint.strokeStyle = paint.fillStyle = name === "budget" ? ink("--bad") : ink("--good");
    paint.setLineDash(name === "budget" ? [10, 4] : [2, 3]);
    paint.lineWidth = 2 * devicePixelRatio;
    paint.beginPath();
    paint.moveTo(left, y);
    paint.lineTo(left + width, y);
    paint.stroke();
    paint.setLineDash([]);
    paint.textAlign = number ? "right" : "left";
    const caption = `${name} ${bytes(level)}`;
    const at = number ? left + width - 6 : left + 6;
    const wide = paint.measureText(caption).width;
    const ink2 = paint.fillStyle;
    paint.fillStyle = ink("--back");
    const low = Math.max(top + 16 * devicePixelRatio, y - 4 * devicePixelRatio);
    paint.fillRect(number ? at - wide - 3 : at - 3, low - 12 * devicePixelRatio, wide + 6, 15 * devicePixelRatio);
    paint.fillStyle = ink2;
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
  const where = grain === 1 ? `run ${column}` : `the largest of runs ${column * grain} to ${column * grain + grain - 1}`;
  const parts = pictures.parts.map((name, part) => [name, series.parts[part][column]]).filter(([, value]) => value > 0);
  const total = parts.reduce((sum, [name, value]) => sum + (name === "padding" || name === "fragmentation" ? 0 : value), 0);
  out.textContent = `${where}, ${series.ops[column] || "before the first op"}: ${bytes(total)} live; `
    + parts.map(([name, value]) => `${name} ${bytes(value)}`).join(", ");
}

function addressChart() {
  const here = pictures.spaces[space];
  const rows = here.rectangles;
  $("addresses-part").hidden = !rows || rows.first.length === 0;
  if ($("addresses-part").hidden) return;
  const arena = Math.max(facts.arena_bytes[spaceName()] || 0, 1);
  const note = rows.shaded ? `The ${rows.first.length.toLocaleString("en")} largest of ${(rows.first.length + rows.shaded)
    .toLocaleString("en")} rectangles are drawn one by one; they are ${(100 * rows.drawn_share).toFixed(1)} % of all bytes `
    + `times runs. The other ${rows.shaded.toLocaleString("en")} are the gray shade, on a grid of ${rows.shade.columns} by ${
      rows.shade.rows}.` : `All ${rows.first.length.toLocaleString("en")} residencies are drawn one by one.`;
  $("addresses-note").textContent = note;
  draw($("addresses"), {
    scales: { x: { time: false, range: (_, low, high) => [Math.max(0, low), Math.min(runsIn(), high)] },
      y: { range: [0, arena / 2 ** 20] } },
    axes: axes("address, MiB"), series: [{}, { stroke: "transparent", points: { show: false } }],
    hooks: { setScale: [together], draw: [(chart) => paintRectangles(chart, rows)],
      setCursor: [(chart) => readAddress(chart, rows)] },
  }, [[0, runsIn()], [0, 0]]);
}

function paintRectangles(chart, rows) {
  const paint = chart.ctx;
  const { left, top, width, height } = chart.bbox;
  const { x, y } = chart.scales;
  const across = width / (x.max - x.min);
  const up = height / (y.max - y.min) / 2 ** 20;
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
  const text = dark ? "#101214" : "#101214";
  paint.lineWidth = devicePixelRatio * 0.6;
  paint.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  paint.textBaseline = "middle";
  paint.textAlign = "left";
  const named = [];
  for (let part = 0; part < 4; part++) {
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
    paint.fillStyle = text;
    paint.fillText(name, from + 5, t + h / 2);
  }
  paint.restore();
}

function readAddress(chart, rows) {
  const out = $("addresses-readout");
  if (chart.cursor.left < 0) {
    out.textContent = "";
    return;
  }
  const run = chart.posToVal(chart.cursor.left, "x");
  const address = chart.posToVal(chart.cursor.top, "y") * 2 ** 20;
  const found = rows.first.findIndex((first, k) => first <= run && run < rows.last[k] && rows.offset[k] <= address
    && address < rows.offset[k] + rows.size[k]);
  out.textContent = found < 0 ? `run ${Math.floor(run)}, address ${bytes(address)}: nothing that is drawn one by one`
    : `${rows.name[found]}${rows.op[found] ? `, made by ${rows.op[found]}` : ""}: ${bytes(rows.size[found])} at ${rows.offset[found]
      .toLocaleString("en")}, runs ${rows.first[found]} to ${rows.last[found]}, ${pictures.parts[rows.role[found]]}`;
}

function curveChart() {
  const curve = facts.frontier;
  $("curve-part").hidden = !curve || curve.points.length === 0;
  if ($("curve-part").hidden) return;
  const holder = $("curve");
  const points = curve.points.map((point) => [point.peak_bytes / 2 ** 20, (100 * point.extra_cost) / (curve.base_cost || 1)])
    .sort((one, other) => one[0] - other[0]);
  const chart = new uPlot({ width: holder.clientWidth - 6, height: 260, legend: { show: false },
    scales: { x: { time: false } },
    axes: axes("extra time, %").map((axis, k) => (k ? axis : { ...axis, label: "peak, MiB" })),
    series: [{}, { stroke: () => ink("--accent"), width: 2, points: { show: true, size: 8 } }] },
  [points.map((point) => point[0]), points.map((point) => point[1])], holder);
  chart.root.dataset.own = "curve";
  const rows = curve.points.map((point, k) => [[bytes(point.budget_bytes), "n"], [bytes(point.peak_bytes), "n"],
    [share(point.extra_cost, curve.base_cost), "n"], [point.status, ""], [k === curve.knee ? "the knee" : "", ""]]);
  $("curve-table").replaceChildren(table(["budget", "peak", "extra time", "status", ""], rows));
}

function streamsChart() {
  const { bars, left_out: left } = pictures.streams;
  $("streams-part").hidden = bars.length === 0;
  if (!bars.length) return;
  const names = [...new Set(bars.map((bar) => bar[0]))];
  const end = Math.max(...bars.map((bar) => bar[1] + bar[2]));
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 1000 ${names.length * 34 + 20}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `What ${names.join(", ")} do over ${end.toPrecision(3)} seconds`);
  const put = (tag, attributes, text) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text) node.textContent = text;
    svg.append(node);
    return node;
  };
  names.forEach((name, row) => put("text", { x: 0, y: row * 34 + 12, fill: "currentColor", "font-size": 12 }, name));
  for (const [stream, start, seconds, what] of bars) {
    const row = names.indexOf(stream);
    const node = put("rect", { x: (start / end) * 1000, y: row * 34 + 16, width: Math.max((seconds / end) * 1000, 0.4), height: 14,
      fill: row ? "var(--bad)" : "var(--accent)" });
    const title = document.createElementNS(NS, "title");
    title.textContent = `${what}: ${seconds.toPrecision(3)} s from ${start.toPrecision(3)} s`;
    node.append(title);
  }
  $("streams").replaceChildren(svg, make("p", { className: "faint" }, `${end.toPrecision(4)} s in all, priced by ${facts.costs}.`
    + (left ? ` The ${left} shortest bars are left out.` : "")));
}

/* Tables */

function table(header, rows) {
  const cell = (tag, [text, kind]) => make(tag, kind ? { className: kind } : {}, text);
  const head = header.map((text, k) => cell("th", [text, rows.length ? rows[0][k][1] : ""]));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((each) => cell("td", each))))));
}

let sortBy = "size_bytes";
let falling = true;
const COLUMNS = [["label", "buffer"], ["size_bytes", "together"], ["op", "made by"], ["lifetime", "class"],
  ["kept_alive_by", "kept alive by"], ["freed_by", "what would free it"]];

function holdersTable() {
  const rows = facts.holders.filter((row) => row.space === spaceName());
  const value = (row) => (sortBy === "kept_alive_by" ? row[sortBy].join(", ") : row[sortBy] ?? "");
  rows.sort((one, other) => {
    const order = sortBy === "size_bytes" ? value(one) - value(other) : String(value(one)).localeCompare(String(value(other)));
    return falling ? -order : order;
  });
  const head = COLUMNS.map(([key, caption]) => {
    const button = make("button", { type: "button" }, caption + (key === sortBy ? (falling ? " \u25be" : " \u25b4") : ""));
    button.onclick = () => {
      falling = key === sortBy ? !falling : key === "size_bytes";
      sortBy = key;
      holdersTable();
      document.querySelector(`#holders th[data-key="${key}"] button`).focus();
    };
    const state = key === sortBy ? (falling ? "descending" : "ascending") : "none";
    return make("th", { "data-key": key, "aria-sort": state, className: key === "size_bytes" ? "n" : "" }, button);
  });
  const peak = facts.peak_bytes[spaceName()];
  const body = rows.map((row) => {
    const first = make("td", {}, row.label);
    if (row.count > 1) {
      const rest = row.count - row.members.length;
      const lines = row.members.map((member) => make("div", {}, `${member.name} (kept alive by ${member.kept_alive_by.join(", ")})`));
      if (rest) lines.push(make("div", {}, `and ${rest} more`));
      first.replaceChildren(make("details", {}, make("summary", {}, `${row.label}, ${bytes(row.size_bytes / row.count)} each`),
        make("div", { className: "members" }, ...lines)));
    }
    return make("tr", {}, first, make("td", { className: "n" }, `${bytes(row.size_bytes)} (${share(row.size_bytes, peak)})`),
      make("td", {}, row.op || ""), make("td", { className: "s" }, row.lifetime), make("td", {}, row.kept_alive_by.join(", ")),
      make("td", {}, row.freed_by));
  });
  const listed = rows.reduce((sum, row) => sum + row.size_bytes, 0);
  $("holders-note").textContent = `${bytes(listed)} of ${bytes(peak)} are listed.`;
  $("holders").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}

function actions() {
  const parts = [];
  const part = (summary, content) => parts.push(content ? make("details", {}, make("summary", {}, summary), content)
    : make("p", {}, summary));
  const more = (list, count) => (count > list.length ? ` (the ${list.length} largest are listed)` : "");
  if (facts.in_chunks) part("The program's largest tensors are computed in chunks.");
  part(`${facts.n_moved} of ${facts.n_ops} ops moved${more(facts.moved, facts.n_moved)}`,
    facts.n_moved ? make("p", {}, facts.moved.join(", ")) : null);
  part(`${facts.n_shared} buffers take over the storage of an input of their op${more(facts.shared, facts.n_shared)}`,
    facts.n_shared ? table(["size", "op", "takes over", "for"], facts.shared.map((row) => [[bytes(row.size_bytes), "n"], [row.op, ""],
      [row.read, ""], [row.written, ""]])) : null);
  part(`${facts.n_reruns} runs are repeated${facts.n_reruns ? `, for ${share(facts.extra_cost, facts.base_cost)} more time` : ""}${
    more(facts.reruns, facts.reruns.length)}`, facts.n_reruns ? table(["makes again", "op", "times", "cost"],
    facts.reruns.map((row) => [[bytes(row.writes_bytes), "n"], [row.op, ""], [String(row.times), "n"],
      [share(row.cost, facts.base_cost), "n"]])) : null);
  const moved = facts.transfers;
  part(`${facts.n_copied} buffers are copied to another memory space${facts.n_copied ? `: ${bytes(moved.bytes_out)}; copies take ${
    moved.hidden_seconds.toPrecision(3)} s behind compute, which waits ${moved.stall_seconds.toPrecision(3)} s` : ""}`,
  facts.n_copied ? table(["size", "buffer", "to", "times"], facts.copied.map((row) => [[bytes(row.size_bytes), "n"], [row.buffer, ""],
    [row.to, ""], [String(row.times), "n"]])) : null);
  $("actions").replaceChildren(...parts);
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

/* All together */

function refresh() {
  const kept = view;
  charts.forEach((chart) => chart.destroy());
  charts = [];
  for (const id of ["memory", "addresses", "curve"]) $(id).replaceChildren();
  legend();
  memoryChart();
  addressChart();
  curveChart();
  if (kept) charts[0].setScale("x", { min: kept[0], max: kept[1] });
  for (const which of ["before", "after"]) $(`show-${which}`).setAttribute("aria-pressed", String(which === shown));
}

function all() {
  headline();
  refresh();
  holdersTable();
}

function begin() {
  document.title = `${facts.name}: memory`;
  $("name").textContent = facts.name;
  $("counts").textContent = `${facts.n_ops.toLocaleString("en")} ops, ${facts.n_buffers.toLocaleString("en")} buffers`;
  const grain = pictures.spaces[0].runs_per_column;
  $("memory-note").textContent = grain === 1 ? "Every run is a column." : `A column stands for ${grain} runs and shows the instant `
    + "among them with most bytes; zooming shows no more than that.";
  pictures.spaces.forEach((each, k) => $("space").append(make("option", { value: String(k) }, each.name)));
  $("space").hidden = pictures.spaces.length < 2;
  $("space").onchange = () => {
    space = Number($("space").value);
    view = null;
    all();
  };
  for (const which of ["before", "after"]) {
    $(`show-${which}`).onclick = () => {
      shown = which;
      refresh();
    };
  }
  $("theme").onclick = () => {
    setTheme(!dark);
    refresh();
  };
  $("whole").onclick = () => charts[0].setScale("x", { min: 0, max: runsIn() });
  $("unmodeled").replaceChildren(...(facts.unmodeled.length ? facts.unmodeled : ["nothing"]).map((line) => make("li", {}, line)));
  actions();
  streamsChart();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  all();
  let was = false;
  addEventListener("beforeprint", () => {
    was = dark;
    setTheme(false);
    refresh();
  });
  addEventListener("afterprint", () => {
    setTheme(was);
    refresh();
  });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, 150);
  });
  root.dataset.ready = String(Math.round(performance.now()));
}

begin();
