"""A graph of TensorFlow: read, planned, written and measured."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_pieces
from lowtide.core.units import format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import HOST, Host
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement, Rewritten
from lowtide.frameworks.model import Model
from lowtide.frameworks.outputs import compare_outputs
from lowtide.frameworks.tensorflow.apply import planned_graph
from lowtide.frameworks.tensorflow.executor import executor_plan, is_worth_its_edges
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE
from lowtide.frameworks.tensorflow.levels import Changes, optimize_nodes
from lowtide.frameworks.tensorflow.load import GraphSource, load_graph
from lowtide.frameworks.tensorflow.measure import made_up_feeds, made_up_variables, run_graph
from lowtide.frameworks.tensorflow.passes import Situation
from lowtide.frameworks.tensorflow.read import Request, read_graph, tensor_names
from lowtide.frameworks.tensorflow.reading.devices import devices_of
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation
from lowtide.frameworks.tensorflow.resident import added_resident_bytes
from lowtide.frameworks.tensorflow.rewrites.starts import with_seeds, with_starts, with_variables
from lowtide.frameworks.wire import named_errors


class TensorflowModel(Model):
    """A graph of TensorFlow, read once."""

    def __init__(
        self,
        source: GraphSource,
        dims: Mapping[str, int] | None = None,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        feeds: Sequence[str] | None = None,
        fetches: Sequence[str] | None = None,
        devices: Mapping[str, str | int] | None = None,
        signature: str | None = None,
    ) -> None:
        """Read a graph from a path (GraphDef, MetaGraphDef, SavedModel or its folder) or from an object.

        `fetches` are requested outputs and nodes, by default those of the signature, or all outputs that no node reads.
        `feeds` are outputs that the caller provides besides placeholders. Sizes come from recorded shapes
        (`_output_shapes`), from `shapes` by output, from `dims` for single sizes of placeholders ("x.0"), and from
        TensorFlow's inference if installed. `devices` are memory sizes by device ({"/gpu:0": "4 GiB"}). `signature`
        selects one of a SavedModel.

        Raises MalformedInputError for a broken graph, UnsupportedError for missing sizes and control flow of TensorFlow
        1, UsageError for names that are not in the graph, GraphError for sizes that are too large.
        """
        self._loaded = load_graph(source, signature)
        request = Request(
            feeds=tuple(self._loaded.feeds if feeds is None else feeds),
            fetches=tuple(self._loaded.fetches if fetches is None else fetches),
            shapes=dict(shapes or {}),
            dims=dict(dims or {}),
            devices=dict(devices or {}),
        )
        self._read = read_graph(self._loaded.graph, request, self._loaded.where)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Endings of binary files and, for a GraphDef, of text files."""
        return self._loaded.file_endings

    @property
    def graph(self) -> Graph:
        """The graph, with ops in the order in which nodes become ready."""
        return self._read.translation.graph

    @property
    def translation(self) -> TensorflowTranslation:
        """The graph with the nodes of its ops."""
        return self._read.translation

    @property
    def unmodified_graph(self) -> GraphDef:
        """The graph as it was read."""
        return self._loaded.graph

    def with_host(self, host: Host) -> "TensorflowModel":
        """Return the same graph with a host that plans may copy to."""
        other = copy(self)
        translation = replace(self.translation, graph=host.added_to(self.graph))
        other._read = replace(self._read, translation=translation)
        return other

    def apply(self, plan: Plan) -> Any:
        """Return a graph that follows the plan, as the kind of object read.

        Control edges order the ops, and recomputed nodes are copies named `Recomputed/NAME`. TensorFlow's own order is
        good for ordinary Keras networks; `measure` shows which needs less memory. Copies to a host are ops that need a
        GPU; `with_host_stand_ins` runs them without one. Raises FingerprintError for a plan of another graph,
        VerificationError for a wrong one.
        """
        return self._loaded.object_of(self.planned_graph(plan))

    def save(self, plan: Plan, path: Path) -> None:
        """Write the graph that follows the plan, as the kind of file read."""
        write_pieces(path, self._loaded.content_of(self.planned_graph(plan), path.name))

    def reason_to_keep(self, plan: Plan, allowed_bytes: int | None, measured: Measurement | None = None) -> str | None:
        """Return in one sentence why the graph is better off without the plan; None if the plan helps.

        A plan that only reorders must beat TensorFlow's own order, measured or simulated.
        """
        if measured is not None and measured.original_bytes is not None and len(plan.order()) == self.graph.n_ops:
            if measured.after_bytes < measured.original_bytes:
                return None
            need, how = measured.original_bytes, "measured"
        else:
            own = executor_plan(self.translation)
            if is_worth_its_edges(self.graph, plan, own, allowed_bytes):
                return None
            need, how = sum(simulate(self.graph, own).peak_bytes.values()), "by a simulation of its executor"
        return (
            f"TensorFlow needs {format_bytes(need)} in its own order ({how}); the plan saves too little, so the graph "
            "is unchanged"
        )

    def save_unmodified(self, path: Path) -> None:
        """Write the graph as it was read."""
        write_pieces(path, self._loaded.content_of(self._loaded.graph, path.name))

    def at_level(
        self,
        level: str,
        scope: str = DEFAULT_SCOPE,
        seconds: Mapping[str, float] | None = None,
        devices: Mapping[str, str] | None = None,
    ) -> Changes:
        """Return the nodes after a level of Grappler's memory optimizer; see `lowtide.tensorflow.optimize`.

        `devices` are memory sizes, by default those given on reading.
        """
        situation = Situation(
            where=self._loaded.where,
            sizes=self._read.sizes,
            shapes=self._read.shapes,
            devices=devices_of(self._loaded.graph.nodes, devices) if devices else self._read.devices,
            fed=[name.partition(":")[0] for name in self._read.fed],
            seconds=seconds,
        )
        with named_errors(self._loaded.where):
            return optimize_nodes(self._loaded.graph.nodes, situation, level, scope)

    def rewritten(self, level: str, devices: Mapping[str, str]) -> Rewritten:
        """Return `at_level` for the command line."""
        changes = self.at_level(level, devices=devices)
        done = {
            "recomputed": changes.recomputed,
            "swapped": [f"{swap.node} input {swap.number}" for swap in changes.swapped],
            "accumulated": changes.accumulated,
            "relaxed": changes.relaxed,
        }
        return Rewritten(
            before_bytes=changes.before_bytes,
            after_bytes=changes.after_bytes,
            done=done,
            write=lambda path: self.save_nodes(changes.nodes, path),
        )

    def planned_graph(self, plan: Plan) -> GraphDef:
        """Return the graph that follows a plan; see `apply` for errors."""
        with named_errors(self._loaded.where):
            return planned_graph(self._loaded.graph, self._read.translation, plan)

    def object_of(self, graph: GraphDef) -> Any:
        """Return another graph as the kind of object read."""
        return self._loaded.object_of(graph)

    def with_nodes(self, nodes: Sequence[NodeDef]) -> Any:
        """Return the graph with other nodes, as `object_of` does."""
        return self.object_of(self._loaded.graph.with_nodes(nodes))

    def save_nodes(self, nodes: Sequence[NodeDef], path: Path) -> None:
        """Write a graph with other nodes, as `save` does."""
        write_pieces(path, self._loaded.content_of(self._loaded.graph.with_nodes(nodes), path.name))

    def measure(self, plan: Plan) -> Measurement:
        """Run the graph in TensorFlow on the CPU, one node at a time, in its own order and under the plan.

        `before_bytes` is the peak in the order in which nodes become ready; `original_bytes` is that of the unmodified
        graph in TensorFlow's order. Random numbers without a seed are the same in all runs. Raises MissingExtraError
        without TensorFlow.
        """
        applied = self.planned_graph(plan)
        graphs = (self.planned_graph(Plan.baseline(self.graph)), applied, self._loaded.graph)
        before, after, original = (run_graph(*self._to_run(graph)) for graph in graphs)

        def run_plain() -> tuple[Any, ...]:
            return run_graph(*self._to_run(self._loaded.graph)).compared

        agreements = [compare_outputs(original.compared, each.compared, run_plain) for each in (before, after)]
        return Measurement.of(
            max(agreements, key=lambda each: each.largest_difference or 0.0),
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            original_bytes=original.peak_bytes,
            host_bytes=after.host_bytes if any(space.name == HOST for space in self.graph.spaces) else None,
        )

    def resident_bytes(self, plan: Plan | None = None) -> int:
        """Return the resident memory that a run adds to a process of its own, with or without a plan.

        This is the real allocator's peak on the CPU, workspaces included, one node at a time. Raises MissingExtraError
        without TensorFlow, UnsupportedError if the graph cannot run or the system is not Linux.
        """
        graph, feeds, fetches, variables = self._to_run(
            self._loaded.graph if plan is None else self.planned_graph(plan)
        )
        started, starts, _ = with_starts(graph, variables)
        return added_resident_bytes(started, feeds, fetches, starts)

    def _to_run(self, graph: GraphDef) -> tuple[GraphDef, dict[str, Any], list[str], dict[str, Any]]:
        runnable = with_seeds(with_variables(graph, self._loaded.captured))
        fetches = [*tensor_names(self._read.translation.body, self._read.translation.results), *self._read.targets]
        return runnable, made_up_feeds(self._read.fed), fetches, made_up_variables(runnable)

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: nodes cannot be timed one by one."""
        raise UnsupportedError("nodes of TensorFlow cannot be timed one by one; price them by --costs eager or fused")
