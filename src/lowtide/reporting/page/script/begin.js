"use strict";
/* Draws all parts */

function refresh() {
  const kept = view;
  charts.forEach((chart) => chart.destroy());
  charts = [];
  for (const id of ["memory", "addresses", "curve"]) $(id).replaceChildren();
  legend();
  memoryChart();
  addressChart();
  curveChart();
  streamsChart();
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
  $("memory-note").textContent = grain === 1 ? "Each column is one run." : `Each column is ${grain} runs and shows the largest memory `
    + "among them, at any zoom.";
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
