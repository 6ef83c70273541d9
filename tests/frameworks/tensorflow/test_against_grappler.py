"""Node for node with Grappler itself, on graphs recorded by tests/oracles/record_grappler_graphs.py."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.tensorflow import GraphDef, optimize

RECORDS: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parents[2] / "data" / "grappler_graphs.json.gz").read_bytes())
)


@pytest.mark.parametrize("level", ["recomputation", "manual"])
def test_the_nodes_are_those_of_grappler_with_the_same_inputs(level: str) -> None:
    """Where two groups share a reader, the original takes them in the order of a hash map, which triggers show."""
    records = [record for record in RECORDS if record["level"] == level]
    exact = copies = 0
    for record in records:
        graph = GraphDef.parse(base64.b64decode(record["graph"]))
        done = optimize(graph, f"original:{level}", devices={"/gpu:0": 2**44})
        ours = {node.name: [node.op, sorted(node.inputs)] for node in done.graph.nodes}
        theirs = {name: [op, sorted(inputs)] for name, op, inputs in record["result"]}
        differ = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        assert all(name.startswith("RecomputeTrigger/") for name in differ), record["name"]
        exact += not differ
        copies += len(done.recomputed)
    assert exact >= 0.9 * len(records)
    assert copies > 20
