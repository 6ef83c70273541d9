"use strict";
/* Streams over time */

function streamsChart() {
  const { bars, left_out: left } = pictures.streams;
  $("streams-part").hidden = bars.length === 0;
  if (!bars.length) return;
  const names = [...new Set(bars.map((bar) => bar[0]))];
  const end = Math.max(...bars.map((bar) => bar[1] + bar[2]));
  const wide = $("streams").clientWidth;
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 ${wide} ${names.length * 34 + 24}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Activity of ${names.join(", ")} over ${end.toPrecision(3)} seconds`);
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
    const node = put("rect", { x: (start / end) * wide, y: row * 34 + 16, width: Math.max((seconds / end) * wide, 0.4), height: 14,
      fill: row ? "var(--bad)" : "var(--accent)" });
    const title = document.createElementNS(NS, "title");
    title.textContent = `${place(what)}: ${seconds.toPrecision(3)} s from ${start.toPrecision(3)} s`;
    node.append(title);
  }
  const foot = names.length * 34 + 18;
  const marks = wide > 700 ? 8 : 4;
  for (let mark = 0; mark <= marks; mark++) {
    const x = (mark / marks) * wide;
    put("line", { x1: x, x2: x, y1: 16, y2: foot - 12, stroke: "var(--line)" });
    put("text", { x, y: foot, fill: "var(--faint)", "font-size": 11, "text-anchor": mark ? (mark < marks ? "middle" : "end") : "start" },
      `${((mark / marks) * end).toPrecision(3)} s`);
  }
  $("streams").replaceChildren(svg, make("p", { className: "faint" }, `${end.toPrecision(4)} s in total (${facts.costs} prices).`
    + (left ? ` The ${left} shortest bars are left out.` : "")));
}
