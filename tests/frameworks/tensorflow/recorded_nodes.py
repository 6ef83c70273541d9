"""The graphs of Grappler's recorded answers as nodes of TensorFlow, with sizes and times from the records."""

from typing import Any

from lowtide.frameworks.tensorflow.graphs.attributes import of_integer, of_type
from lowtide.frameworks.tensorflow.passes import Situation
from lowtide.frameworks.tensorflow.reading.devices import devices_of
from lowtide.tensorflow import NodeDef
from tests.frameworks.tensorflow.small_graphs import FLOAT


def nodes_of_record(record: dict[str, Any]) -> list[NodeDef]:
    """Return the nodes of a record, floats all of them, on the device that was limited."""
    kind = "CPU" if record["level"] == "scheduling" else "GPU"
    return [_node(node, f"/device:{kind}:0") for node in record["nodes"]]


def situation_of(record: dict[str, Any], nodes: list[NodeDef]) -> Situation:
    """Return the sizes and times of a record."""
    sizes = {(node["name"], port): size for node in record["nodes"] for port, size in enumerate(node["bytes"])}
    capacity = record["capacity_bytes"]
    name = "/cpu:0" if record["level"] == "scheduling" else "/gpu:0"
    return Situation(
        where=record["name"],
        sizes=dict(sizes),
        shapes={key: (size // 4,) for key, size in sizes.items()},
        devices=devices_of(nodes, {} if capacity is None else {name: f"{capacity} B"}),
        seconds={node["name"]: node["ns"] * 1e-9 for node in record["nodes"]},
    )


def _node(node: dict[str, Any], device: str) -> NodeDef:
    attributes = {"T": of_type(FLOAT), "dtype": of_type(FLOAT), "U": of_type(FLOAT)}
    attributes["N"] = of_integer(sum(not name.startswith("^") for name in node["inputs"]))
    if node.get("recompute"):
        attributes["_recompute_hint"] = of_integer(0)
    if "swap" in node:
        attributes["_swap_to_host"] = of_integer(node["swap"][0])
    return NodeDef.make(node["name"], node["kind"], node["inputs"], attributes, device)
