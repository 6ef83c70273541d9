"""Copies to the host where there is no GPU: a second CPU stands in for the host, so that graphs with swaps run."""

from collections.abc import Collection

from lowtide.frameworks.tensorflow.graphs.attributes import integer, of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import COPY_BACK, COPY_OUT

STAND_IN = "/device:CPU:1"
"""The device that stands in for the host."""
_COPY = "DeepCopy"


def with_host_stand_ins(graph: GraphDef, missing: Collection[str] = (COPY_OUT, COPY_BACK)) -> GraphDef:
    """Return a graph that runs without a GPU: what leaves for the host is copied to a second CPU, and back from there.

    `missing` are the ops that TensorFlow does not have here; copies by others stay. The session needs two CPUs and soft
    placement: `ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)`.
    """
    if not any(node.op in missing and node.op in (COPY_OUT, COPY_BACK) for node in graph.nodes):
        return graph
    return graph.with_nodes([_stand_in(node) if node.op in missing else node for node in graph.nodes])


def _stand_in(node: NodeDef) -> NodeDef:
    device = STAND_IN if node.op == COPY_OUT else node.device
    return NodeDef.make(node.name, _COPY, node.inputs, {"T": of_type(integer(node.attribute("T")))}, device)
