"""An ONNX model as lowtide sees it: read once, planned, written back, measured."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from weakref import finalize

from onnx import ModelProto

from lowtide.core.errors import InputError, UnsupportedError
from lowtide.core.files import write_bytes, write_pieces
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.arena.runs import joined_texts
from lowtide.frameworks.model import Measurement, RuntimePeaks, RuntimeRun
from lowtide.frameworks.onnx.annotate import notes_of_model, notes_of_nodes, with_notes
from lowtide.frameworks.onnx.apply import planned_order
from lowtide.frameworks.onnx.chunks.choose import Fineness
from lowtide.frameworks.onnx.chunks.versions import ChunkedVersions
from lowtide.frameworks.onnx.chunks.write import write_in_chunks
from lowtide.frameworks.onnx.loading.content import drained
from lowtide.frameworks.onnx.loading.external_data import (
    check_weights_reachable,
    link_weights,
    place_for_copies,
)
from lowtide.frameworks.onnx.loading.light import light_model
from lowtide.frameworks.onnx.loading.load import (
    ModelSource,
    describe_source,
    load_model,
    load_whole_model,
    serialize,
    source_folder,
    whole_content,
)
from lowtide.frameworks.onnx.loading.metadata import ADDRESSES, BY_DEFAULT, PLANNED
from lowtide.frameworks.onnx.loading.reordered import NodeOrder, reordered_model
from lowtide.frameworks.onnx.measure import equal_outputs, measure_peak
from lowtide.frameworks.onnx.read import read_model
from lowtide.frameworks.onnx.running.children import measure_in_child, optimize_offline
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.levels import first_pass
from lowtide.frameworks.onnx.stock.numbering import numbered_for_default_order
from lowtide.frameworks.onnx.stock.stock_graph import StockGraph, running_nodes
from lowtide.frameworks.wire import Content


class OnnxModel:
    """An ONNX model and its graph, read once."""

    def __init__(self, source: ModelSource, dims: Mapping[str, int] | None = None) -> None:
        """Read a model from a path or an object; its weights are never loaded.

        `dims` gives sizes to dynamic dimensions by name. One without a name is called after its input and place: "x.0".
        Raises MalformedInputError for a broken model, UnsupportedError for dynamic dimensions without a size (it lists
        all of them), UsageError for sizes that do not fit the model, GraphError for sizes no machine can hold.
        """
        self._source = self._given = source
        self._model = load_model(source)
        self._name = describe_source(source)
        self._folder = source_folder(source)
        self._dims = dict(dims or {})
        self._level: str | None = None
        self._left_whole: tuple[str, ...] = ()
        self._translation = read_model(self._model, self._dims, self._name)
        self._runs = StockGraph(self._model.graph, self._translation)
        """What the stock runtime runs; where a file is made for lowtide's session, that may be another graph."""
        self._in_chunks = ChunkedVersions(self._cut)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of ONNX files end."""
        return (".onnx",)

    @property
    def graph(self) -> Graph:
        """The model as a graph."""
        return self._translation.graph

    @property
    def in_chunks(self) -> Graph | None:
        """The model with its largest values computed in chunks with equal bits; see `write_in_chunks`.

        None where that cannot lower the peak, or a model cannot be tried: one without fixed sizes, one that ONNX
        Runtime does not run.
        """
        return None if self._in_chunks.coarse is None else self._in_chunks.coarse.graph

    @property
    def in_finer_chunks(self) -> Graph | None:
        """The same in as many chunks as still help, None where `in_chunks` has as many."""
        return None if self._in_chunks.fine is None else self._in_chunks.fine.graph

    @property
    def chunks_take_time(self) -> bool:
        """True: a Scan starts its body for every chunk, and small products take longer."""
        return True

    @property
    def left_whole(self) -> Sequence[str]:
        """What could not be computed in chunks, and why, a sentence each; none where nobody asked for it."""
        return self._left_whole

    def _cut(self, fineness: Fineness) -> "OnnxModel | None":
        if self._dims:
            self._left_whole = ("the whole model: only one of fixed sizes can be cut",)
            return None
        found = write_in_chunks(self._content(), self._model, self._translation, self._folder, fineness)
        self._left_whole = found.left_whole
        if found.path is None:
            return None
        model = OnnxModel(found.path)
        finalize(model, rmtree, found.path.parent, ignore_errors=True)
        model._level = self._level
        graph = replace(model.graph, name=f"{self.graph.name}, {found.done}")
        model._translation = replace(model._translation, graph=graph)
        model._runs = self._runs
        return model

    def _planned_by(self, plan: Plan) -> "OnnxModel":
        """Return the model that a plan is for: in chunks, or as it stands, also where it is for none of these."""
        is_own = plan.graph_fingerprint == self.graph.fingerprint
        return self if is_own else self._in_chunks.planned_by(plan) or self

    def apply(self, plan: Plan) -> ModelProto:
        """Return the model with its nodes in the plan's order and nothing else changed; the original stays.

        Nodes that the plan runs again stand there again, with new names for what they write. Raises FingerprintError
        for a plan of another graph, UnsupportedError for one that copies, VerificationError for one that breaks the
        program.
        """
        planned = self._planned_by(plan)
        order = planned_order(planned._model, planned._translation, plan)
        return ModelProto.FromString(b"".join(reordered_model(planned._content(), order, {})))

    def save(self, plan: Plan, path: Path) -> None:
        """Write the reordered model, whole or not at all; weights in other files stay where they are.

        Its metadata says that its order is planned; nothing else changes. Raises UnsupportedError when the new place
        cannot reach those files, UsageError when it cannot be written.
        """
        check_weights_reachable(self._model, self._folder, path.parent)
        write_pieces(path, drained(self._planned_by(plan)._planned(plan)))

    def save_annotated(self, plan: Plan, path: Path) -> None:
        """Write what `save` does, with what the plan says of each node in its metadata, which viewers show."""
        check_weights_reachable(self._model, self._folder, path.parent)
        model = self._planned_by(plan)
        order, _ = model._file_order(plan)
        content = b"".join(model._planned(plan, notes_of_model(plan)))
        write_pieces(path, with_notes(content, notes_of_nodes(model._translation, plan, order)))

    def _planned(self, plan: Plan, notes: Mapping[str, str] | None = None) -> list[bytes | memoryview]:
        """Return the reordered model; its metadata says how it is planned."""
        order, by = self._file_order(plan)
        metadata = {PLANNED: (self._level or "file") + by}
        if self._level is not None:
            metadata |= self._addresses(order, metadata)
        return reordered_model(self._content(), order, {**metadata, **(notes or {})})

    def _file_order(self, plan: Plan) -> tuple[NodeOrder, str]:
        """Return how the nodes stand in a file that follows a plan, and what its metadata says of that.

        Where the stock runtime would need more for the file than it does now, one is tried whose default order is the
        plan's.
        """
        order = planned_order(self._model, self._translation, plan)
        stock = StockGraph(self._model.graph, self._translation)
        if self._level is None or stock.peak_of(order.nodes) <= self._runs.peak_bytes:
            return order, ""
        numbered = numbered_for_default_order(self._model.graph, self._translation, order)
        return (order, "") if numbered is None else (numbered, BY_DEFAULT)

    def optimized(self, level: str | None) -> "OnnxModel":
        """Return the model as ONNX Runtime would run it at a level, by default the highest that keeps all bits.

        The runtime writes it in a process of its own: casts and copies that it inserts, fused operators and folded
        constants are then nodes like all others. Raises UsageError for an unknown level, UnsupportedError for a model
        that the runtime does not load.
        """
        folder = Path(mkdtemp(prefix="lowtide.", dir=place_for_copies(self._model, self._folder)))
        try:
            path, output = folder / "given.onnx", folder / "optimized.onnx"
            if isinstance(self._source, ModelProto):
                write_bytes(path, serialize(self._source, self._name))
            else:
                path = Path(self._source)
                link_weights(self._model, path.parent, folder)  # what the runtime leaves as it is stays there
            found = optimize_offline(path, level, output, self._dims)
            model = OnnxModel(output, self._dims)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        finalize(model, rmtree, folder, ignore_errors=True)
        model._level, model._given = found, self._source
        first = first_pass(output)
        runs = OnnxModel(first, self._dims)._runs if first.exists() else model._runs
        changed = running_nodes(self._model.graph) != running_nodes(runs.graph)
        model._runs = replace(runs, in_running_order=changed)
        return model

    @property
    def level(self) -> str | None:
        """The level at which ONNX Runtime optimized the model, None for one as it was given."""
        return self._level

    def _addresses(self, order: NodeOrder, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Run the planned model in processes of their own and return the addresses they learned, if it runs at all.

        Kernels' workspaces depend on the number of threads: addresses are noted for one, and for all of this machine.
        """
        with TemporaryDirectory(prefix="lowtide.", dir=place_for_copies(self._model, self._folder)) as folder:
            planned = Path(folder, "planned.onnx")
            if self._folder is not None:
                link_weights(self._model, self._folder, Path(folder))
            write_pieces(planned, drained(reordered_model(self._content(), order, metadata)))
            try:
                learned = [
                    measure_in_child(planned, self._dims, planned=True, runs=3, threads=threads).addresses
                    for threads in sorted({1, os.cpu_count() or 1})
                ]
            except UnsupportedError:
                return {}
        return {ADDRESSES: joined_texts(filter(None, learned))} if any(learned) else {}

    def _content(self) -> Content:
        """Return the bytes of what was read; raises InputError where they have changed since."""
        content = whole_content(self._source)
        if not isinstance(self._source, ModelProto) and _differ(self._model, light_model(content)):
            raise InputError(f"{self._name} has changed since it was read; plan it again")
        return content

    def runtime_peaks(self, plan: Plan) -> RuntimePeaks:
        """Return what the file and the planned one take as the stock runtime would run them, on one thread.

        A model of which the runtime's optimizations changed anything was written in the order in which it runs; one
        that they left alone stands as it was.
        """
        planned = self._planned_by(plan)
        order, _ = planned._file_order(plan)
        after = StockGraph(planned._model.graph, planned._translation).reordered(order.nodes)
        before = self._runs.as_it_stands()
        return RuntimePeaks(
            by="ONNX Runtime's default order",
            before_bytes=before.order_bytes,
            after_bytes=after.order_bytes,
            before_resident_bytes=before.resident_bytes,
            after_resident_bytes=after.resident_bytes,
            unmodeled=self._runs.unmodeled,
        )

    def runtime_runs(self, plan: Plan) -> list[RuntimeRun]:
        """Run the given file in the stock runtime, and the planned one in a session, each in a process of its own."""
        with TemporaryDirectory(prefix="lowtide.", dir=place_for_copies(self._model, self._folder)) as folder:
            given, planned = Path(folder, "given.onnx"), Path(folder, "planned.onnx")
            if isinstance(self._given, ModelProto):
                write_bytes(given, serialize(self._given, self._name))
            else:
                given = Path(self._given)
            if self._folder is not None:
                link_weights(self._model, self._folder, Path(folder))
            self.save(plan, planned)
            level = self._level or "none"
            predicted = None if self._runs.is_ordered_at_random else self._runs.as_it_stands()
            modeled = measure_in_child(given, self._dims, planned=False, level=level, threads=1, own_pages=True)
            ways = {"stock runtime, all optimizations": (given, False)}
            ways[f"lowtide's session, level {self._level or 'file'}"] = (planned, True)
            others = [self._run(by, *way) for by, way in ways.items()]
        made = f"stock runtime, level {level}, one thread"
        if predicted is None:
            return [modeled.as_run(made), *others]
        usual, other = predicted.resident_bytes, predicted.otherwise_resident_bytes
        otherwise = None if other == usual else other
        return [modeled.as_run(made, predicted_bytes=usual, otherwise_predicted_bytes=otherwise), *others]

    def _run(self, by: str, path: Path, planned: bool) -> RuntimeRun:
        figures = measure_in_child(path, self._dims, planned=planned)
        whole = measure_in_child(path, self._dims, planned=planned, as_it_comes=True)
        return figures.as_run(by, resident_bytes=whole.resident_bytes, predicted_bytes=figures.reserved_bytes)

    def measure(self, plan: Plan) -> Measurement:
        """Run the model as it stands and under the plan in ONNX Runtime, on random inputs; see `measure_peak`."""
        inputs = random_inputs(self._model, self._dims)
        before = measure_peak(load_whole_model(self._source), inputs, dims=self._dims, folder=self._folder)
        after = measure_peak(self.apply(plan), inputs, dims=self._dims, folder=self._folder)
        return Measurement(
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            outputs_equal=equal_outputs(before.outputs, after.outputs),
        )

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: ONNX Runtime runs models, not single ops."""
        raise UnsupportedError("ops of ONNX models cannot be timed one by one; price them by --costs eager or fused")


def _differ(model: ModelProto, light: bytes) -> bool:
    return ModelProto.FromString(light).SerializeToString(deterministic=True) != model.SerializeToString(
        deterministic=True
    )
