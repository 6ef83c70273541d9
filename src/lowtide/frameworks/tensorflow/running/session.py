"""Graphs in a session of TensorFlow without any optimizer, one node at a time."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lowtide.core.errors import MissingExtraError
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.operators.kinds import COPY_BACK, COPY_OUT
from lowtide.frameworks.tensorflow.running.host_copies import STAND_IN, with_host_stand_ins


def tensorflow() -> Any:
    """Return the package; raises MissingExtraError where it is not installed.

    Where it was not loaded yet, its start-up messages are kept quiet, and it runs without oneDNN, which fuses nodes and
    so gives other bits under other orders.
    """
    if find_spec("tensorflow") is None:
        raise MissingExtraError("tensorflow", "there is no package tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as module  # pyright: ignore

    return module


def graph_message(graph: GraphDef) -> Any:
    """Return a graph as a message of TensorFlow's own."""
    message = tensorflow().compat.v1.GraphDef()
    message.ParseFromString(graph.SerializeToString())
    return message


def imported_graph(graph: GraphDef) -> Any:
    """Return a graph as a tf.Graph, a second CPU standing in for the host where there is no GPU to copy from."""
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
    """One node that ran, as TensorFlow reports it."""

    name: str
    started_ns: int
    ended_ns: int
    outputs: Mapping[int, tuple[int, int]]
    """Per output, where its storage begins and how many bytes it takes."""
    is_on_host: bool
    """Whether it ran on the CPU that stands in for the host."""


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One run of a graph."""

    values: Sequence[Any]
    state: Sequence[Any]
    """What was asked for after the run."""
    nodes: Sequence[NodeRun]
    """In the order in which they started."""


def open_session(graph: GraphDef, *, with_grappler: bool = False) -> Any:
    """Return a session that runs a graph on one thread, with no optimizer on or with those that TensorFlow has on."""
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
    """Run a graph as `open_session` does; `starts` are nodes that run before it, with what they are fed.

    `ends` are outputs that are asked for in a second run, after it.

    Raises MissingExtraError where TensorFlow is not installed, and whatever TensorFlow raises.
    """
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
        config.graph_options.rewrite_options.min_graph_nodes = -1  # graphs of a few nodes, too
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
    return NodeRun(
        stats.node_name, stats.all_start_nanos, stats.all_start_nanos + stats.all_end_rel_nanos, outputs, is_on_host
    )
