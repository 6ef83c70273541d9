"""Run graphs in TensorFlow, one node at a time, unoptimized."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lowtide.core.errors import MissingExtraError
from lowtide.frameworks.tensorflow.graphs.attributes import integer, of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import COPY_BACK, COPY_OUT
from lowtide.frameworks.tested_releases import TENSORFLOW

STAND_IN = "/device:CPU:1"
"""The second CPU, which replaces the host."""
_COPY = "DeepCopy"


@cache
def tensorflow() -> Any:
    """Return the package; raises MissingExtraError if missing, warns if its release is not tested.

    Loading disables start-up messages and oneDNN, which makes bits depend on the order.
    """
    if find_spec("tensorflow") is None:
        raise MissingExtraError("tensorflow", "there is no package tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    module: Any = import_module("tensorflow")
    TENSORFLOW.warn(module.__version__)
    return module


def graph_message(graph: GraphDef) -> Any:
    message = tensorflow().compat.v1.GraphDef()
    message.ParseFromString(graph.SerializeToString())
    return message


def with_host_stand_ins(graph: GraphDef, missing: Collection[str] = (COPY_OUT, COPY_BACK)) -> GraphDef:
    """Return a graph with copies to a second CPU instead of the ops in `missing`, which need a GPU.

    The session needs `ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)`.
    """
    if not any(node.op in missing and node.op in (COPY_OUT, COPY_BACK) for node in graph.nodes):
        return graph
    return graph.with_nodes([_stand_in(node) if node.op in missing else node for node in graph.nodes])


def _stand_in(node: NodeDef) -> NodeDef:
    device = STAND_IN if node.op == COPY_OUT else node.device
    return NodeDef.make(node.name, _COPY, node.inputs, {"T": of_type(integer(node.attribute("T")))}, device)


def imported_graph(graph: GraphDef) -> Any:
    tf = tensorflow()
    missing = [op for op in (COPY_OUT, COPY_BACK) if _op_definition(op) is None]
    made = tf.Graph()
    with made.as_default():
        tf.import_graph_def(graph_message(with_host_stand_ins(graph, missing)), name="")
    return made


def _op_definition(op: str) -> Any:
    registry: Any = import_module("tensorflow.python.framework.op_def_registry")
    return registry.get(op)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node."""

    name: str
    started_ns: int
    outputs: Mapping[int, tuple[int, int]]
    """Address and bytes of each."""
    is_on_host: bool


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One run of a graph."""

    values: Sequence[Any]
    state: Sequence[Any]
    """The outputs fetched after the run."""
    nodes: Sequence[NodeRun]
    """In the order of their start."""


def open_session(graph: GraphDef, *, with_grappler: bool = False) -> Any:
    """Open a session on one thread, with TensorFlow's optimizers or with none."""
    tf = tensorflow()
    return tf.compat.v1.Session(graph=imported_graph(graph), config=_config(tf, with_grappler))


def run_session(
    graph: GraphDef,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    targets: Sequence[str],
    starts: Sequence[tuple[str, Mapping[str, Any]]] = (),
    ends: Sequence[str] = (),
    *,
    with_grappler: bool = False,
) -> SessionRun:
    """Run `starts` (node, feeds), then the graph, then fetch `ends`; errors of TensorFlow pass."""
    tf = tensorflow()
    with open_session(graph, with_grappler=with_grappler) as session:
        for target, contents in starts:
            session.run(target, contents)
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        report = tf.compat.v1.RunMetadata()
        values = session.run([*fetches, *targets], feeds, options=options, run_metadata=report)[: len(fetches)]
        state: list[Any] = session.run(list(ends)) if ends else []
    runs = [
        _node_run(stats, is_on_host=device.device.endswith(STAND_IN))
        for device in report.step_stats.dev_stats
        for stats in device.node_stats
        if stats.node_name != "_SOURCE"
    ]
    return SessionRun(values, state, sorted(runs, key=lambda run: run.started_ns))


def _config(tf: Any, with_grappler: bool) -> Any:
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    config.device_count["CPU"] = 2
    config.allow_soft_placement = True
    if with_grappler:
        config.graph_options.rewrite_options.min_graph_nodes = -1  # also for small graphs
    else:
        config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
        config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _node_run(stats: Any, *, is_on_host: bool) -> NodeRun:
    outputs = {
        output.slot: (
            output.tensor_description.allocation_description.ptr,
            output.tensor_description.allocation_description.requested_bytes,
        )
        for output in stats.output
    }
    return NodeRun(stats.node_name, stats.all_start_nanos, outputs, is_on_host)
