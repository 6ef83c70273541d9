"use strict";
/* Streams over time */

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
    title.textContent = `${place(what)}: ${seconds.toPrecision(3)} s from ${start.toPrecision(3)} s`;
    node.append(title);
  }
  $("streams").replaceChildren(svg, make("p", { className: "faint" }, `${end.toPrecision(4)} s in all, priced by ${facts.costs}.`
    + (left ? ` The ${left} shortest bars are left out.` : "")));
}
