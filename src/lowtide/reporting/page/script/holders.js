"use strict";
/* Tensors alive at the peak, a sortable table */

let sortBy = "size_bytes";
let falling = true;
const COLUMNS = [["label", "buffer"], ["size_bytes", "total"], ["op", "made by"], ["made_at", "where"], ["lifetime", "class"],
  ["kept_alive_by", "kept alive by"], ["freed_by", "How to lower it"]];

function holdersTable() {
  const rows = facts.holders.filter((row) => row.space === spaceName());
  const value = (row, key) => (key === "kept_alive_by" ? row[key].join(", ") : row[key] ?? "");
  rows.sort((one, other) => {
    const order = sortBy === "size_bytes" ? one[sortBy] - other[sortBy]
      : String(value(one, sortBy)).localeCompare(String(value(other, sortBy)));
    return falling ? -order : order;
  });
  const columns = COLUMNS.filter(([key]) => rows.some((row) => value(row, key) !== ""));
  const head = columns.map(([key, caption]) => {
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
    const first = make("td", {}, ...name(row.label));
    if (row.count > 1) {
      const rest = row.count - row.members.length;
      const lines = row.members.map((member) => make("div", {}, `${member.name}${
        member.made_at ? `, ${member.made_at}` : ""} (kept alive by ${member.kept_alive_by.join(", ")})`));
      if (rest) lines.push(make("div", {}, `and ${rest} more`));
      first.replaceChildren(make("details", {}, make("summary", {}, ...name(`${row.label}, ${bytes(Math.round(row.size_bytes / row.count))} each${
        row.size_bytes % row.count ? " on average" : ""}`)),
        make("div", { className: "members" }, ...lines)));
    }
    const cells = {
      label: () => first,
      size_bytes: () => make("td", { className: "n" }, `${bytes(row.size_bytes)} (${share(row.size_bytes, peak)})`),
      lifetime: () => make("td", { className: "s" }, row.lifetime),
      freed_by: () => make("td", {}, row.freed_by),
    };
    return make("tr", {}, ...columns.map(([key]) => (cells[key] ? cells[key]() : make("td", {}, ...name(value(row, key))))));
  });
  const listed = rows.reduce((sum, row) => sum + row.size_bytes, 0);
  $("holders-note").textContent = `${bytes(listed)} of ${bytes(peak)} listed.`;
  $("holders").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}
