"""Packing the best order of every graph of a folder, beside the field's rules."""

import sys

from packing_instances import Instance, plan_instances
from packing_rows import HEAD, Programs, Row, against_peers, measure, pack, run_peers, verdicts
from results import table_head, write_section
from sample_graphs import SAMPLES, chosen_graphs

from lowtide import Buffers
from lowtide.engine.graph.file_format import read_graph_file
from lowtide.engine.schedule.candidate import make_candidate


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when the graphs are the project's own."""
    folder, paths = chosen_graphs(__doc__)
    programs = Programs(minimalloc=None, vela_python=None)
    pack(Instance("none", Buffers([0], [1], [1])))
    print("\n".join(table_head(HEAD)))
    rows: list[Row] = []
    for path in paths:
        graph = read_graph_file(path)
        found = make_candidate("search", graph, in_place=True)
        if found.solved is None:
            sys.exit(f"{path}: the search says nothing about what ops need while they run")
        name = path.name.removesuffix(".gz").removesuffix(".graph.json")
        instances = plan_instances(name, graph, found.plan, found.solved.problem.transient)
        rows += [measure(instance, "balanced", run_peers(instance, programs)) for instance in instances]
    at_bound = sum(row.arena_bytes == row.bound_bytes for row in rows)
    worst = max(rows, key=lambda row: row.arena_bytes / row.bound_bytes)
    compared = against_peers(rows)
    lines = [
        f"- at the bound: {at_bound} of {len(rows)}; largest gap {worst.arena_bytes / worst.bound_bytes - 1:.3%} "
        f"({worst.instance.name})",
        f"- seconds of lowtide: {sum(row.seconds for row in rows):.2f} for all, slowest "
        f"{max(row.seconds for row in rows):.3f}",
        *verdicts([compared]),
    ]
    print("\n".join(["", *lines]))
    if not compared[1]:
        sys.exit("lowtide is above a peer")
    if folder.resolve() == SAMPLES.resolve():
        lead = (
            "Orders of the search at default effort, in-place pairs taken. Seconds of one run, of packing alone; peers "
        )
        lead += "as in the section Packing, without programs."
        text = [lead, "", *lines, "", *table_head(HEAD), *(row.line() for row in rows)]
        write_section("Packing sample graphs", "python benchmarks/bench_packing_graphs.py", "\n".join(text))


if __name__ == "__main__":
    main()
