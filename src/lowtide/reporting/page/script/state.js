"use strict";
/* Choices of the reader */

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

const runsIn = () => Math.max(pictures.spaces[space].before.n_runs, pictures.spaces[space].after.n_runs, 1);
