"use strict";
/* The data, and helpers of all parts */

const report = JSON.parse(document.getElementById("report").textContent);
const facts = report.figures;
const pictures = report.pictures;
const root = document.documentElement;
const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const { className, ...attributes } = properties;
  const node = document.createElement(tag);
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

/* One unit for the whole page, so that figures can be compared at a glance. */
const largest = Math.max(...[facts.baseline_peak_bytes, facts.peak_bytes, facts.persistent_bytes].flatMap(Object.values));
const [UNIT, UNIT_NAME] = largest >= 2 ** 20 ? [2 ** 20, "MiB"] : [1, "B"];

function bytes(count) {
  if (count === null || count === undefined) return "-";
  if (UNIT === 1) return `${count.toLocaleString("en")} B`;
  if (count > 0 && count < 512) return "<0.001 MiB";
  const digits = count > 0 && count < UNIT ? 3 : 1;
  return `${(count / UNIT).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} MiB`;
}

/* Three digits, at most two behind the point, as `percent` in core/units.py writes them. */
function percent(share) {
  return `${(100 * share).toFixed(share < 0.09995 ? 2 : share < 0.9995 ? 1 : 0)} %`;
}

function share(part, whole) {
  return whole ? percent(part / whole) : "-";
}

/* An op by name, with its source line if known. */
function place(op) {
  return Object.hasOwn(pictures.sources, op) ? `${op} (${pictures.sources[op]})` : op;
}

/* A name that may be broken after a dot, a dash or an underscore, but not before a digit. */
function name(text) {
  const pieces = text.split(/(?<=[._:/-])(?!\d)/);
  return pieces.flatMap((piece, k) => (k ? [document.createElement("wbr"), piece] : [piece]));
}

function table(header, rows) {
  const cell = (tag, [text, kind]) => make(tag, kind ? { className: kind } : {}, ...name(text));
  const head = header.map((text, k) => cell("th", [text, rows.length ? rows[0][k][1] : ""]));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((each) => cell("td", each))))));
}
