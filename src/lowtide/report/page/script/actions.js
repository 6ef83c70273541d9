"use strict";
/* What the plan does */

function actions() {
  const parts = [];
  const part = (summary, content) => parts.push(content ? make("details", {}, make("summary", {}, summary), content)
    : make("p", {}, summary));
  const more = (list, count) => (count > list.length ? ` (the ${list.length} largest are listed)` : "");
  if (facts.in_chunks) part("The program's largest tensors are computed in chunks.");
  part(`${facts.n_moved} of ${facts.n_ops} ops moved${more(facts.moved, facts.n_moved)}`,
    facts.n_moved ? make("p", {}, facts.moved.join(", ")) : null);
  part(`${facts.n_shared} buffers take over the storage of an input of their op${more(facts.shared, facts.n_shared)}`,
    facts.n_shared ? table(["size", "op", "takes over", "for"], facts.shared.map((row) => [[bytes(row.size_bytes), "n"], [row.op, ""],
      [row.read, ""], [row.written, ""]])) : null);
  part(`${facts.n_reruns} runs are repeated${facts.n_reruns ? `, for ${share(facts.extra_cost, facts.base_cost)} more time` : ""}${
    more(facts.reruns, facts.reruns.length)}`, facts.n_reruns ? table(["makes again", "op", "times", "cost"],
    facts.reruns.map((row) => [[bytes(row.writes_bytes), "n"], [row.op, ""], [String(row.times), "n"],
      [share(row.cost, facts.base_cost), "n"]])) : null);
  const moved = facts.transfers;
  part(`${facts.n_copied} buffers are copied to another memory space${facts.n_copied ? `: ${bytes(moved.bytes_out)}; copies take ${
    moved.hidden_seconds.toPrecision(3)} s behind compute, which waits ${moved.stall_seconds.toPrecision(3)} s` : ""}`,
  facts.n_copied ? table(["size", "buffer", "to", "times"], facts.copied.map((row) => [[bytes(row.size_bytes), "n"], [row.buffer, ""],
    [row.to, ""], [String(row.times), "n"]])) : null);
  $("actions").replaceChildren(...parts);
}
