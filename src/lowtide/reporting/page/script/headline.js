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
    box("before", bytes(before), "peak of the untouched program"),
    box("after", bytes(after), before ? `${(after / before).toFixed(3)} of before` : ""),
    box("lower bound", bytes(facts.lower_bound_bytes[name]), facts.bound_sentence),
    box("arena", bytes(facts.arena_bytes[name]), "with addresses"),
    box("persistent", bytes(facts.persistent_bytes[name]), "apart from all others"),
  ];
  if (met !== null) boxes.push(box("budget", bytes(budget), met ? "met" : "NOT met"));
  if (facts.measured) {
    const measured = facts.measured;
    const near = measured.outputs_near ? "equal to rounding" : "NOT equal";
    boxes.push(box("measured", bytes(measured.after_bytes),
      `before ${bytes(measured.before_bytes)}; outputs ${measured.outputs_equal ? "equal, bit for bit" : near}`));
  }
  if (facts.extra_cost) boxes.push(box("extra time", share(facts.extra_cost, facts.base_cost), `priced by ${facts.costs}`));
  $("figures").replaceChildren(...boxes);
  $("verdict").textContent = `${facts.verdict}${facts.shortfall ? `; budget NOT met: ${facts.shortfall}` : ""}`;
  $("verdict").className = facts.shortfall || met === false ? "bad" : facts.status === "optimal" ? "good" : "faint";
}
