r"""Ask Grappler's own estimate of the peak what our recomputation saves, where its own saves nothing.

    PYTHONPATH=. python tests/oracles/estimate_with_grappler.py runs tests/data/grappler_estimates.json
    PYTHONPATH=. tensorflow/bin/python tests/oracles/estimate_with_grappler.py \
        estimates tests/data/grappler_estimates.json

The first, in lowtide's environment, writes for every recorded network the nodes in the order in which our plans run
them, some twice: the plan at Grappler's level, and the one of `minimize` within a budget. The second adds the
estimates: of the program, of what Grappler's pass makes of it, and of our runs as a graph in which every node waits for
the one before it and reads the latest copy.
"""

import json
import sys
from pathlib import Path
from typing import Any

BUDGET = "80%"
MEANS = ("recompute", "reorder")


def write_runs(path: str) -> None:
    """Write the runs of our plans."""
    from lowtide import minimize
    from lowtide.frameworks.tensorflow.grappler.levels import optimize_memory
    from tests.oracles.grappler_records import graph_of, hints_of, plannable_graph_of, records

    rows: list[dict[str, Any]] = []
    for record in records("recomputation"):
        if record["scope"] == "gradients/" and not record["name"].startswith("random"):
            graph = graph_of(record)
            order = optimize_memory(graph, "recomputation", hints=hints_of(record)).plan.order()
            within = minimize(plannable_graph_of(record), budget=BUDGET, allow=MEANS, in_place=False)
            rows.append(
                {
                    "name": record["name"],
                    "runs": [graph.op_names[op] for op in order],
                    "budget": BUDGET,
                    "runs_within": [graph.op_names[op] for op in within.plan.order()],
                    "extra_cost": within.extra_cost / within.base_cost,
                }
            )
    _write(path, rows)


def add_estimates(path: str) -> None:
    """Add Grappler's estimates to the runs, in bytes."""
    from tests.oracles.record_grappler import HUGE, cluster_of, estimate, meta_of, network, optimize

    rows = json.loads(Path(path).read_bytes())
    for row in rows:
        meta = meta_of(network(row["name"]))
        row["program"] = estimate(meta)
        theirs = optimize(meta, "recomputation", "gradients/", cluster_of(HUGE, "GPU"))
        row["grappler"] = estimate(with_nodes(meta, theirs.node))
        row["ours"] = estimate(with_nodes(meta, _chained(meta.graph_def, row["runs"])))
        row["within"] = estimate(with_nodes(meta, _chained(meta.graph_def, row["runs_within"])))
    _write(path, rows)


def with_nodes(meta: Any, nodes: Any) -> Any:
    """Return a graph for Grappler with other nodes."""
    from tensorflow.core.protobuf import meta_graph_pb2

    result = meta_graph_pb2.MetaGraphDef()
    result.CopyFrom(meta)
    del result.graph_def.node[:]
    result.graph_def.node.extend(nodes)
    return result


def _chained(graph_def: Any, runs: list[str]) -> list[Any]:
    """Return a node per run, variables first; another run is a copy, which everything behind it reads."""
    from tensorflow.core.framework import node_def_pb2

    originals = {node.name: node for node in graph_def.node}
    runs = sorted(runs, key=lambda name: originals[name].op != "VariableV2")
    latest: dict[str, str] = {}
    count: dict[str, int] = {}
    nodes: list[Any] = []
    for name in runs:
        node = node_def_pb2.NodeDef()
        node.CopyFrom(originals[name])
        count[name] = count.get(name, 0) + 1
        node.name = f"Recomputed{count[name]}/{name}" if name in latest else name
        del node.input[:]
        for each in originals[name].input:
            source, _, port = each.lstrip("^").partition(":")
            node.input.append(f"{'^' if each.startswith('^') else ''}{latest[source]}{f':{port}' if port else ''}")
        if nodes and f"^{nodes[-1].name}" not in node.input:
            node.input.append(f"^{nodes[-1].name}")
        latest[name] = node.name
        nodes.append(node)
    return nodes


def _write(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    {"runs": write_runs, "estimates": add_estimates}[sys.argv[1]](sys.argv[2])
