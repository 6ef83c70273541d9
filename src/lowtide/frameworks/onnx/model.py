"""An ONNX model: read, planned, written and measured."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from weakref import WeakKeyDictionary, finalize

from onnx import ModelProto

from lowtide.core.errors import InputError, UnsupportedError, UsageError
from lowtide.core.files import write_bytes, write_pieces
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement, RuntimePeaks, RuntimeRun
from lowtide.engine.planning.program import Form, FormName
from lowtide.frameworks.arena.runs import joined_texts
from lowtide.frameworks.model import Model
from lowtide.frameworks.onnx.annotate import notes_of_model, notes_of_nodes, with_notes
from lowtide.frameworks.onnx.apply import planned_order
from lowtide.frameworks.onnx.chunks.choose import COARSE, FINE, Fineness
from lowtide.frameworks.onnx.chunks.write import write_in_chunks
from lowtide.frameworks.onnx.loading.external_data import (
    check_weights_reachable,
    folder_for_copies,
    remove_links,
    temporary_folder,
)
from lowtide.frameworks.onnx.loading.load import (
    ADDRESSES,
    BY_DEFAULT,
    PLANNED,
    SMALL,
    ModelSource,
    describe_source,
    drained,
    light_model,
    load_model,
    load_whole_model,
    serialize,
    source_folder,
    whole_content,
)
from lowtide.frameworks.onnx.loading.rewrite import NodeOrder, reordered_model
from lowtide.frameworks.onnx.measure import MeasuredRun, measure_peak
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.children import measure_in_child, optimize_offline
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.levels import LAST_LEVEL
from lowtide.frameworks.onnx.running.machine import machine_of
from lowtide.frameworks.onnx.running.session import sharing_of
from lowtide.frameworks.onnx.stock.stock_graph import StockGraph, running_nodes
from lowtide.frameworks.outputs import compare_outputs
from lowtide.frameworks.wire import Content

_LEAST_PLACED_BYTES = 2**15
"""Smaller runs fit in pages that the C library keeps in any case."""


@dataclass(frozen=True, eq=False)
class OnnxForm(Form):
    """A form and its model."""

    model: "OnnxModel" = field(kw_only=True)


class OnnxModel(Model):
    """An ONNX model and its graph, read once."""

    def __init__(self, source: ModelSource, dims: Mapping[str, int] | None = None) -> None:
        """Read a model from a path or an object, without its weights.

        `dims` are sizes of dynamic dimensions by name; one without a name is called after its input and axis: "x.0".
        Raises MalformedInputError for a broken model, UnsupportedError listing dynamic dimensions without a size,
        UsageError for sizes that do not fit the model, GraphError for sizes too large for any machine.
        """
        self._source = self._given = source
        self._model = load_model(source)
        self._name = describe_source(source)
        self._folder = source_folder(source)
        self._dims = dict(dims or {})
        self._level: str | None = None
        self._is_faster_here = False
        self._skipped: tuple[str, ...] = ()
        self._translation = read_model(self._model, self._dims, self._name)
        self._stock = self._runs = StockGraph(self._model.graph, self._translation)
        """The graph in the stock runtime; `_runs` keeps an optimized model's order."""
        self._file_orders: WeakKeyDictionary[Plan, tuple[NodeOrder, str]] = WeakKeyDictionary()

    @property
    def file_endings(self) -> tuple[str, ...]:
        """The ending of ONNX files."""
        return (".onnx",)

    @property
    def graph(self) -> Graph:
        """The model as a graph."""
        return self._translation.graph

    @property
    def chunking_slows(self) -> bool:
        """A Scan starts its body for every chunk, and small products take longer."""
        return True

    def make_unmodified(self) -> "OnnxForm":
        """Return the model as it was read."""
        return OnnxForm("unmodified", self.graph, model=self)

    def make_form(self, name: FormName, *, exact: bool) -> "OnnxForm | None":
        """Return the model with its largest values in bit-equal chunks.

        None if chunks do not lower the peak, sizes are dynamic, or ONNX Runtime does not run the model.
        """
        if not exact or name == "in finest chunks":
            return None
        if name == "in chunks":
            return self._chunked(name, COARSE)
        coarse = self.form("in chunks")
        fine = None if coarse is None else self._chunked(name, FINE)
        return None if coarse is None or fine is None or fine.graph.fingerprint == coarse.graph.fingerprint else fine

    def left_whole(self, *, exact: bool = True) -> tuple[str, ...]:
        """Return one sentence for each value that chunking skipped, with the reason, if chunks were tried."""
        return self._skipped

    def _chunked(self, name: FormName, fineness: Fineness) -> "OnnxForm | None":
        if self._dims:
            self._skipped = ("the whole model: chunking needs fixed sizes",)
            return None
        found = write_in_chunks(self._content(), self._model, self._translation, self._folder, fineness)
        self._skipped = found.left_whole
        if found.path is None:
            return None
        model = OnnxModel(found.path)
        finalize(model, rmtree, found.path.parent, ignore_errors=True)
        model._read_weights_of(self)
        model._level = self._level
        graph = replace(model.graph, name=f"{self.graph.name}, {found.done}")
        model._translation = replace(model._translation, graph=graph)
        model._runs = self._runs
        return OnnxForm(name, graph, model=model)

    def _read_weights_of(self, other: "OnnxModel") -> None:
        if self._folder is not None:
            remove_links(other._model, self._folder)
        self._folder = other._folder

    def _planned_by(self, plan: Plan) -> "OnnxModel":
        form = self.form_of(plan)
        return form.model if isinstance(form, OnnxForm) else self

    def apply(self, plan: Plan) -> ModelProto:
        """Return a copy of the model with its nodes in the plan's order.

        Recomputed nodes appear again, with new output names. Raises FingerprintError for a plan of another graph,
        UnsupportedError for one that copies, VerificationError for a wrong one.
        """
        planned = self._planned_by(plan)
        order = planned_order(planned._model, planned._translation, plan)
        return ModelProto.FromString(b"".join(reordered_model(planned._content(), order, {})))

    def save(self, plan: Plan, path: Path) -> None:
        """Write the reordered model completely or not at all; weights in other files stay there.

        Raises UnsupportedError if the new folder cannot reach the weights, UsageError if the file cannot be written.
        """
        check_weights_reachable(self._model, self._folder, path.parent)
        write_pieces(path, drained(self._planned_by(plan)._planned(plan)))

    def save_annotated(self, plan: Plan, path: Path) -> None:
        """Write as `save` does, with notes on the plan in each node's metadata, for viewers."""
        check_weights_reachable(self._model, self._folder, path.parent)
        model = self._planned_by(plan)
        order, _ = model._file_order(plan)
        content = b"".join(model._planned(plan, notes_of_model(plan)))
        write_pieces(path, with_notes(content, notes_of_nodes(model._translation, plan, order)))

    def save_for_session(self, plan: Plan, path: Path, level: str) -> None:
        """Write a model, optimized here at `level`, in a plan's order; only lowtide's session follows it."""
        order = planned_order(self._model, self._translation, plan)
        metadata = {PLANNED: level, **machine_of(self._model), **sharing_of(self._model), **self._small(plan)}
        write_pieces(path, drained(reordered_model(self._content(), order, metadata)))

    def _planned(self, plan: Plan, notes: Mapping[str, str] | None = None) -> list[bytes | memoryview]:
        order, by = self._file_order(plan)
        metadata = {PLANNED: (self._level or "file") + by, **sharing_of(self._model), **self._small(plan)}
        if self._level is not None:
            metadata |= machine_of(self._model)
            metadata |= {} if SMALL in metadata else self._addresses(order, metadata)
        return reordered_model(self._content(), order, {**metadata, **(notes or {})})

    def _small(self, plan: Plan) -> Mapping[str, str]:
        peak_bytes = sum(plan.peak_bytes.values())
        return {SMALL: str(peak_bytes)} if not self._dims and 0 < peak_bytes < _LEAST_PLACED_BYTES else {}

    def _file_order(self, plan: Plan) -> tuple[NodeOrder, str]:
        """Return a planned file's node order, and its mark in the metadata.

        If the stock runtime would need more memory than for the unmodified file, an order that it keeps is tried.
        """
        if plan not in self._file_orders:
            order = planned_order(self._model, self._translation, plan)
            fits = self._level is None or self._stock.peak_of(order.nodes) <= self._runs.peak_bytes
            numbered = None if fits else self._stock.numbered(order)
            self._file_orders[plan] = (order, "") if numbered is None else (numbered, BY_DEFAULT)
        return self._file_orders[plan]

    def optimized(self, level: str | None, *, for_this_machine: bool = False) -> "OnnxModel":
        """Return the model as ONNX Runtime runs it at a level, by default the highest with equal bits anywhere.

        `for_this_machine` is the last level, "all". Raises UsageError for an unknown level or a lower one with
        `for_this_machine`, UnsupportedError for a model that the runtime does not load.
        """
        if for_this_machine:
            if level not in (None, LAST_LEVEL):
                raise UsageError(f"the fastest form on this machine has level {LAST_LEVEL}; leave out level {level}")
            level = LAST_LEVEL
        folder = folder_for_copies(self._model, self._folder)
        try:
            output = folder / "optimized.onnx"
            found = optimize_offline(self._file_of(self._source, folder), level, output, self._dims)
            model = OnnxModel(output, self._dims)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        finalize(model, rmtree, folder, ignore_errors=True)
        model._read_weights_of(self)
        model._level, model._given = found.level, self._source
        model._is_faster_here = found.is_faster_here
        changed = running_nodes(self._model.graph) != running_nodes(model._model.graph)
        model._runs = replace(model._stock, in_running_order=changed)
        return model

    @property
    def takes_notes(self) -> bool:
        """True: nodes of ONNX models have metadata."""
        return True

    @property
    def is_reordered_by_runtime(self) -> bool:
        """True: ONNX Runtime optimizes a model and orders its nodes."""
        return True

    @property
    def level(self) -> str | None:
        """The level at which ONNX Runtime optimized the model; None for one as given."""
        return self._level

    @property
    def is_faster_here(self) -> bool:
        """Whether `optimized` left out a faster form, in the blocked layout of convolutions of this processor."""
        return self._is_faster_here

    def _addresses(self, order: NodeOrder, metadata: Mapping[str, str]) -> Mapping[str, str]:
        """Return the addresses of runs in child processes; empty if the model does not run."""
        with temporary_folder(self._model, self._folder) as folder:
            planned = folder / "planned.onnx"
            write_pieces(planned, drained(reordered_model(self._content(), order, metadata)))
            try:
                learned = [
                    measure_in_child(planned, self._dims, planned=True, runs=3, threads=threads).addresses
                    for threads in sorted({1, os.cpu_count() or 1})
                ]
            except UnsupportedError:
                return {}
        return {ADDRESSES: joined_texts(filter(None, learned))} if any(learned) else {}

    def _file_of(self, source: ModelSource, folder: Path) -> Path:
        if not isinstance(source, ModelProto):
            return Path(source)
        path = folder / "given.onnx"
        write_bytes(path, serialize(source, self._name))
        return path

    def _content(self) -> Content:
        content = whole_content(self._source)
        if not isinstance(self._source, ModelProto) and _differ(self._model, light_model(content)):
            raise InputError(f"{self._name} has changed since it was read; plan it again")
        return content

    def runtime_peaks(self, plan: Plan) -> RuntimePeaks:
        """Return the memory of the unmodified and the planned file in the stock runtime, on one thread.

        If its optimizations changed the model, the unmodified file is the optimized one.
        """
        planned = self._planned_by(plan)
        order, _ = planned._file_order(plan)
        after = planned._stock.reordered(order.nodes)
        before = self._runs.in_own_order()
        return RuntimePeaks(
            by="ONNX Runtime's default order",
            before_bytes=before.order_bytes,
            after_bytes=after.order_bytes,
            before_resident_bytes=before.resident_bytes,
            after_resident_bytes=after.resident_bytes,
            unmodeled=self._runs.unmodeled,
        )

    def runtime_runs(self, plan: Plan) -> list[RuntimeRun]:
        """Run the given file in the stock runtime and the planned one in a session."""
        with temporary_folder(self._model, self._folder) as folder:
            given, planned = self._file_of(self._given, folder), folder / "planned.onnx"
            self.save(plan, planned)
            level = self._level or "none"
            predicted = None if self._runs.is_ordered_at_random else self._runs.in_own_order()
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
        """Run the unmodified and the planned model in ONNX Runtime on random inputs; see `measure_peak`."""
        inputs = random_inputs(self._model, self._dims)

        def run(model: ModelProto) -> MeasuredRun:
            return measure_peak(model, inputs, dims=self._dims, folder=self._folder)

        before, after = run(load_whole_model(self._source)), run(self.apply(plan))
        agreement = compare_outputs(before.outputs, after.outputs, lambda: run(load_whole_model(self._source)).outputs)
        return Measurement.of(agreement, before_bytes=before.peak_bytes, after_bytes=after.peak_bytes)

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: ONNX Runtime runs models, not single ops."""
        raise UnsupportedError("ops of ONNX models cannot be timed one by one; price them by --costs eager or fused")


def _differ(model: ModelProto, light: bytes) -> bool:
    return ModelProto.FromString(light).SerializeToString(deterministic=True) != model.SerializeToString(
        deterministic=True
    )
