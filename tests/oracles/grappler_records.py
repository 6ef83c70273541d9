"""Grappler's own answers, recorded by tests/oracles/record_grappler.py, and the graphs they belong to."""

import gzip
import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from lowtide.frameworks.tensorflow.grappler.pressure import LiveBuffer, Pressure

RECORDS: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "grappler.json.gz").read_bytes())
)


def records(level: str) -> list[dict[str, Any]]:
    """Return the records of one level."""
    return [record for record in RECORDS if record["level"] == level]


def graph_of(record: dict[str, Any]) -> Graph:
    """Build the graph of a record: one op per node, in the order in which the virtual cluster runs them, one buffer
    per output. Variables are persistent; nothing else outlives its last reader, as in Grappler's own estimate."""
    builder = GraphBuilder(record["name"])
    builder.add_space("gpu", capacity_bytes=record["capacity_bytes"], bandwidth_bytes_per_s={"host": 16e9})
    builder.add_space("host", bandwidth_bytes_per_s={"gpu": 16e9})
    places = {node["name"]: place for place, node in enumerate(record["nodes"])}
    buffers: dict[str, int] = {}
    for node in record["nodes"]:
        persistent = node["kind"] == "VariableV2"
        written: list[int] = []
        for port, size in enumerate(node["bytes"]):
            lifetime = Lifetime.PERSISTENT if persistent else Lifetime.INTERMEDIATE
            written.append(builder.add_buffer(f"{node['name']}:{port}", size, lifetime))
            buffers[f"{node['name']}:{port}"] = written[-1]
        data = [name if ":" in name else f"{name}:0" for name in node["inputs"] if not name.startswith("^")]
        builder.add_op(
            node["name"],
            node["kind"],
            reads=[buffers[name] for name in data],
            writes=[] if persistent else written,
            after=[places[name[1:]] for name in node["inputs"] if name.startswith("^")],
            cost=node["ns"] * 1e-9,
            device=None,
        )
    return builder.build()


def plannable_graph_of(record: dict[str, Any]) -> Graph:
    """Build the graph of a record for planners that know no feeds: what is fed or stored comes once."""
    graph = graph_of(record)
    return replace(graph, pure=np.array([kind not in ("Placeholder", "VariableV2") for kind in graph.op_kinds]))


def hints_of(record: dict[str, Any]) -> Hints:
    """Return the attributes that stood at the nodes of a record."""
    return Hints(
        recompute=frozenset(node["name"] for node in record["nodes"] if node.get("recompute")),
        swap={node["name"]: node["swap"] for node in record["nodes"] if "swap" in node},
        fed=frozenset(node["name"] for node in record["nodes"] if node["kind"] == "Placeholder"),
    )


def source(name: str) -> str:
    """Return the node that an input names."""
    return name.lstrip("^").split(":")[0]


def pressure_in(record: dict[str, Any], graph: Graph) -> Pressure:
    """Return the peak of a record as Grappler itself estimates it, in whole microseconds as there: a value is live
    until a nanosecond after its last reader is done, so that it is counted with what the next op allocates."""
    clock = list(accumulate((node["ns"] for node in record["nodes"]), initial=0))
    starts = [time // 1000 * 1e-6 for time in clock]
    places = {name: op for op, name in enumerate(graph.op_names)}
    buffers = {name: buffer for buffer, name in enumerate(graph.buffer_names)}
    live = [
        LiveBuffer(buffers[tensor], starts[places[source(tensor)]], end * 1e-9) for tensor, _, _, end in record["live"]
    ]
    ends = [start + 1e-9 for start in starts[1:]]
    excess = record["peak_bytes"] - record["capacity_bytes"]
    return Pressure(excess, max(each.allocated_at for each in live), live, ends)
