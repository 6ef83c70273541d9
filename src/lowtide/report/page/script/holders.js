"use strict";
/* Who holds memory at the peak, a table that can be sorted */

let sortBy = "size_bytes";
let falling = true;
const COLUMNS = [["label", "buffer"], ["size_bytes", "together"], ["op", "made by"], ["made_at", "where"], ["lifetime", "class"],
  ["kept_alive_by", "kept alive by"], ["freed_by", "what would free it"]];

function holdersTable() {
  const rows = facts.holders.filter((row) => row.space === spaceName());
  const value = (row) => (sortBy === "kept_alive_by" ? row[sortBy].join(", ") : row[sortBy] ?? "");
  rows.sort((one, other) => {
    const order = sortBy === "size_bytes" ? value(one) - value(other) : String(value(one)).localeCompare(String(value(other)));
    return falling ? -order : order;
  });
  const head = COLUMNS.map(([key, caption]) => {
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
    const first = make("td", {}, row.label);
    if (row.count > 1) {
      const rest = row.count - row.members.length;
      const lines = row.members.map((member) => make("div", {}, `${member.name}${
        member.made_at ? `, ${member.made_at}` : ""} (kept alive by ${member.kept_alive_by.join(", ")})`));
      if (rest) lines.push(make("div", {}, `and ${rest} more`));
      first.replaceChildren(make("details", {}, make("summary", {}, `${row.label}, ${bytes(row.size_bytes / row.count)} each`),
        make("div", { className: "members" }, ...lines)));
    }
    return make("tr", {}, first, make("td", { className: "n" }, `${bytes(row.size_bytes)} (${share(row.size_bytes, peak)})`),
      make("td", {}, row.op || ""), make("td", {}, row.made_at || ""), make("td", { className: "s" }, row.lifetime),
      make("td", {}, row.kept_alive_by.join(", ")), make("td", {}, row.freed_by));
  });
  const listed = rows.reduce((sum, row) => sum + row.size_bytes, 0);
  $("holders-note").textContent = `${bytes(listed)} of ${bytes(peak)} are listed.`;
  $("holders").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}
