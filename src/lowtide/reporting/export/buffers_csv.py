"""Export of buffers as CSV for packers."""

import csv
from io import StringIO

import numpy as np

from lowtide.engine.analysis.live_ranges import live_ranges, storage_blocks
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind


def buffers_csv(graph: Graph, plan: Plan, space: int) -> bytes:
    """Return a CSV line per storage block or scratch of a space: id, live range, size, alignment.

    Live ranges are half-open, in steps of the plan; storage from before the first step begins at 0. Buffers in place
    share a block. Its id is its first buffer, with the step if the name is not unique.
    """
    ranges = live_ranges(graph, plan)
    blocks = storage_blocks(graph, ranges)
    first_residency = np.full(len(blocks), -1, np.int64)
    first_residency[blocks.of_residency[::-1]] = np.arange(len(ranges))[::-1]
    alignment = graph.spaces[space].alignment
    rows: list[tuple[str, int, int, int]] = []
    for block in np.flatnonzero((blocks.spaces == space) & (blocks.sizes > 0)).tolist():
        name = graph.buffer_names[int(ranges.buffers[first_residency[block]])]
        first, last = int(blocks.first_steps[block]) + 1, int(blocks.last_steps[block]) + 1
        rows.append((name, first, last, int(blocks.sizes[block])))
    scratch = Problem(graph, plan.callees).transient[:, space]
    for step in np.flatnonzero(plan.kinds == StepKind.RUN).tolist():
        op = int(plan.targets[step])
        if scratch[op]:
            rows.append((f"scratch of {graph.op_names[op]}", step + 1, step + 2, int(scratch[op])))
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("id", "lower", "upper", "size", "alignment"))
    seen: set[str] = set()
    for name, first, last, size in rows:
        unique = name
        while unique in seen:
            unique = f"{unique}@{first}"
        seen.add(unique)
        writer.writerow((unique, first, last, size, alignment))
    return out.getvalue().encode("utf-8", "backslashreplace")
