"use strict";
/* Colors and hatches: every part has both, so that it can be read without color */

const LIGHT = ["#4e79a7", "#b07aa1", "#59a14f", "#f28e2b", "#76b7b2", "#e15759", "#bab0ac", "#dcdcdc"];
const DARK = ["#6f9fd0", "#c79bbb", "#6fb866", "#f2a65a", "#5f9f9a", "#ec7b7d", "#8d8682", "#4a4f55"];
const HATCHES = ["solid", "dots", "grid", "rising", "falling", "cross", "across", "upright"];
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
  if (hatch === "across" || hatch === "grid") line(0, 4, size, 4);
  if (hatch === "upright" || hatch === "grid") line(4, 0, 4, size);
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
