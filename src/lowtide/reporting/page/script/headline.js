"use strict";
/* The figures at the top */

function headline() {
  const name = spaceName();
  const before = facts.baseline_peak_bytes[name];
  const after = facts.peak_bytes[name];
  const budget = facts.budget_bytes[name];
  const met = budget === null || budget === undefined ? null : after <= budget;
  const box = (caption, value, note) => make("div", {}, make("span", { className: "faint" }, caption), make("b", {}, value),
    make("small", {}, note));
  const boxes = [
    box("before", bytes(before), "peak of the unmodified program"),
    box("after", bytes(after), before ? `${(after / before).toFixed(3)} of before` : ""),
    box("lower bound", bytes(facts.lower_bound_bytes[name]), facts.bound_sentence),
    box("arena", bytes(facts.arena_bytes[name]), "with addresses"),
    box("persistent", bytes(facts.persistent_bytes[name]), "not included in the others"),
  ];
  if (met !== null) boxes.push(box("budget", bytes(budget), met ? "met" : "missed"));
  if (facts.measured) {
    const measured = facts.measured;
    boxes.push(box("measured", bytes(measured.after_bytes),
      `before ${bytes(measured.before_bytes)}; outputs ${facts.outputs}`));
  }
  if (facts.extra_time) boxes.push(box("extra time", percent(facts.extra_time), `${facts.costs} prices, chunks included`));
  if (facts.measured && facts.measured.times) {
    const { before_seconds: plain, after_seconds: planned, noise } = facts.measured.times;
    boxes.push(box("measured time", `${planned > plain ? "+" : ""}${((planned / plain - 1) * 100).toFixed(1)} %`,
      `${(plain * 1e3).toFixed(1)} ms before, ${(planned * 1e3).toFixed(1)} ms after; steps differ by ${percent(noise)} each way`));
  }
  $("figures").replaceChildren(...boxes);
  $("verdict").textContent = `${facts.verdict}${facts.shortfall ? `: ${facts.shortfall}` : ""}`;
  $("verdict").className = facts.shortfall || met === false ? "bad" : facts.status === "optimal" ? "good" : "faint";
}
