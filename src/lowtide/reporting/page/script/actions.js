"use strict";
/* Changes that the plan makes */

function actions() {
  const parts = [];
  const part = (count, summary, content) => count && parts.push(content ? make("details", {}, make("summary", {}, summary), content)
    : make("p", {}, summary));
  const more = (list, count) => (count > list.length ? ` (${list.length} largest listed)` : "");
  part(facts.in_chunks, "The largest tensors are computed in chunks.");
  part(facts.n_moved, `${facts.n_moved} of ${facts.n_ops} ops moved${more(facts.moved, facts.n_moved)}`,
    make("p", {}, ...name(facts.moved.join(", "))));
  part(facts.n_shared, `${facts.n_shared} buffers are computed in place${more(facts.shared, facts.n_shared)}`,
    table(["size", "op", "storage of", "used by"], facts.shared.map((row) => [[bytes(row.size_bytes), "n"], [row.op, ""],
      [row.read, ""], [row.written, ""]])));
  part(facts.n_reruns, `${facts.n_reruns} recomputed runs`, table(["recomputes", "op", "times", "cost"],
    facts.reruns.map((row) => [[bytes(row.writes_bytes), "n"], [row.op, ""], [String(row.times), "n"],
      [share(row.cost, facts.base_cost), "n"]])));
  const moved = facts.transfers;
  part(facts.n_copied, `${facts.n_copied} buffers are copied to another memory space: ${bytes(moved.bytes_out)}; copies overlap with ${
    moved.hidden_seconds.toPrecision(3)} s of compute, which waits ${moved.stall_seconds.toPrecision(3)} s`,
  table(["size", "buffer", "to", "times"], facts.copied.map((row) => [[bytes(row.size_bytes), "n"], [row.buffer, ""],
    [row.to, ""], [String(row.times), "n"]])));
  part(!parts.length, "None: the program runs unmodified.");
  $("actions").replaceChildren(...parts);
}
