"use strict";
/* The data, and what every part writes with */

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

function bytes(count) {
  if (count === null || count === undefined) return "-";
  const mebibytes = count / 2 ** 20;
  if (Math.abs(mebibytes) >= 1) {
    return `${mebibytes.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} MiB`;
  }
  return `${count.toLocaleString("en")} B`;
}

function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(2)} %` : "-";
}

/* An op as people find it: by name and, where that is known, where their program has it. */
function place(op) {
  return Object.hasOwn(pictures.sources, op) ? `${op} (${pictures.sources[op]})` : op;
}

function table(header, rows) {
  const cell = (tag, [text, kind]) => make(tag, kind ? { className: kind } : {}, text);
  const head = header.map((text, k) => cell("th", [text, rows.length ? rows[0][k][1] : ""]));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((each) => cell("td", each))))));
}
