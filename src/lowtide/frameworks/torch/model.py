"""A PyTorch program as lowtide sees it: captured once, planned, applied, measured."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch.export import ExportedProgram

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan
from lowtide.engine.planning.chunked import is_to_rounding
from lowtide.frameworks.model import Measurement
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.capture.exported_file import load_exported
from lowtide.frameworks.torch.compile.convolution_layouts import scratch_under_inductor
from lowtide.frameworks.torch.compile.distributed.agreement import require_one_order
from lowtide.frameworks.torch.compile.outlining import outline_chunks
from lowtide.frameworks.torch.emit.apply import Applied, apply_plan, check_plan
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.emit.exported import save_exported
from lowtide.frameworks.torch.internals.exported_archive import has_fixed_sizes
from lowtide.frameworks.torch.measure.measure_captured import check_real, measure_captured
from lowtide.frameworks.torch.measure.measured_costs import measure_prices
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import (
    ChunkedModule,
    Chunking,
    chunk_module,
    chunk_module_in_two_passes,
)
from lowtide.frameworks.torch.rewrites.chunks.rounding import largest_difference


class TorchModel:
    """A PyTorch program, captured and read once."""

    def __init__(
        self, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None, *, trust: bool = False
    ) -> None:
        """Capture a program: a path to a .pt2 file, or anything that `capture` takes, and with its errors.

        With `trust`, loading a file may run code from it.
        """
        if dims:
            raise UsageError("a PyTorch program takes its sizes from its example inputs; --dim is for ONNX models")
        self.host = host
        if isinstance(source, str | Path):
            source = load_exported(Path(source), trust=trust)
        self.captured = capture(source)
        self._has_file = isinstance(source, ExportedProgram) and has_fixed_sizes(source) and host is None
        self._readings = _Readings(self.captured)
        self._verified: WeakSet[Plan] = WeakSet()
        """The plans that were verified for this program."""

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of exported programs end; none where sizes are dynamic, or where the program lives in Python."""
        return (".pt2",) if self._has_file else ()

    @property
    def graph(self) -> Graph:
        """The program as a graph, with the host beside it."""
        return self._graph

    @property
    def in_chunks(self) -> Graph | None:
        """The program with its largest products and updates done in chunks of rows; see `chunk_module`."""
        return self._graph_in_chunks

    @property
    def in_finer_chunks(self) -> Graph | None:
        """The program with products in chunks, with rows computed twice; see `chunk_module_in_two_passes`."""
        return self._graph_in_finer_chunks

    @property
    def left_whole(self) -> Sequence[str]:
        """What large products are computed as a whole though chunks were looked for, and why, a sentence each."""
        return self._readings.left_whole

    @property
    def chunks_take_time(self) -> bool:
        """False: chunks of a step take no more time than it does whole."""
        return False

    def with_host(self, host: Host) -> "TorchModel":
        """Return the same program with a host that its plans may copy to."""
        return self._variant(self._readings, host)

    @cached_property
    def to_rounding(self) -> "TorchModel":
        """The same program, whose chunks may make sums in another order, so that they equal it to rounding alone."""
        return self._variant(self._readings.to_rounding, self.host)

    def for_fusion(self) -> "TorchModel":
        """Return the same program for Inductor: its scratch is what it takes there, chunks are equal to rounding."""
        return self._variant(_Readings(self.captured, Chunking.for_fusion()), self.host)

    def _variant(self, readings: "_Readings", host: Host | None) -> "TorchModel":
        other = TorchModel(self.captured, host=host)
        other._readings = readings
        return other

    @property
    def in_pieces(self) -> Graph | None:
        """Return `in_chunks`; the old name, which goes in the next release."""
        warnings.warn("TorchModel.in_pieces is now in_chunks; use that name", DeprecationWarning, stacklevel=2)
        return self.in_chunks

    def beside(self, host: Host) -> "TorchModel":
        """Return `with_host(host)`; the old name, which goes in the next release."""
        warnings.warn("TorchModel.beside is now with_host; use that name", DeprecationWarning, stacklevel=2)
        return self.with_host(host)

    @cached_property
    def _graph(self) -> Graph:
        return self._with_host_added(self._readings.whole.graph)

    @cached_property
    def _graph_in_chunks(self) -> Graph | None:
        chunks = self._readings.in_chunks
        return None if chunks is None else self._with_host_added(chunks.graph)

    @cached_property
    def _graph_in_finer_chunks(self) -> Graph | None:
        chunks = self._readings.in_finer_chunks
        return None if chunks is None else self._with_host_added(chunks.graph)

    def _with_host_added(self, graph: Graph) -> Graph:
        return graph if self.host is None else self.host.added_to(graph)

    def apply(self, plan: Plan, *, verified: bool = False) -> Applied:
        """Return the program as a callable that follows a plan, which is for its graph or for that in chunks.

        A plan is verified once; with `verified`, the caller says that it was, as `minimize` verifies those it makes.
        Raises FingerprintError for a plan of another graph, VerificationError for one that is wrong. Its first call
        raises FingerprintError where the plan runs collectives again, in another order than on other ranks.
        """
        reading, graph = self._planned_by(plan)
        module = reading.captured.graph_module
        applied = apply_plan(
            plan,
            reading,
            graph,
            verified=verified or plan in self._verified,
            before_first_call=lambda: require_one_order(module, graph, plan),
        )
        self._verified.add(plan)
        return applied

    def graph_for(self, plan: Plan) -> Graph:
        """Return the graph that a plan is for, in chunks or as it stands; the latter where it is for none."""
        return self._planned_by(plan)[1]

    def _planned_by(self, plan: Plan) -> tuple[Reading, Graph]:
        if not _is_for(plan, self.graph):
            for model in (self, self.to_rounding):
                if found := model._chunks_planned_by(plan):
                    return found
        return self._readings.whole, self.graph

    def _chunks_planned_by(self, plan: Plan) -> tuple[Reading, Graph] | None:
        readings = self._readings
        if (found := readings.in_chunks) and (graph := self.in_chunks) and _is_for(plan, graph):
            return found, graph
        if (found := readings.in_finer_chunks) and (graph := self.in_finer_chunks) and _is_for(plan, graph):
            return found, graph
        return None

    def save(self, plan: Plan, path: Path) -> None:
        """Write an exported program in the order of a plan; see `save_exported`.

        Raises UnsupportedError for any other program, of which only the plan goes to a file.
        """
        if not self._has_file:
            raise UnsupportedError(
                f"cannot write a PyTorch program to {path} unless it was exported with fixed sizes and copies nothing "
                "to a host; write the plan (-o NAME.plan.json) and apply it in Python with lowtide.apply(plan, program)"
            )
        reading, graph = self._planned_by(plan)
        check_plan(plan, reading, graph, verified=plan in self._verified)
        save_exported(self.captured, emit(reading.captured.graph_module, reading.lowered, plan, boxed=False), path)

    def check_measurable(self) -> None:
        """Raise UnsupportedError where the program has no real inputs to run on."""
        check_real(self.captured.example_args, self.captured.example_kwargs)

    def measure(self, plan: Plan) -> Measurement:
        """Run the captured program in its own order, under the plan, and as the user wrote it, from one same state.

        Everything is compared bit for bit over all three: results, gradients, updated parameters and state. A plan that
        is equal to rounding alone is compared number for number, which takes a copy of all of these twice. Where that
        tells more than rounding, an optimizer may have made it so: it divides gradients by their size. So the user's
        own program runs once more, with inputs and state that are others in their last digits, and the plan may differ
        64 times as much: sums of thousands of numbers differ by tens of last digits, in whatever order they are made.
        """
        near = is_to_rounding(self.graph_for(plan), self)
        before = measure_captured(self.captured, self.apply(Plan.baseline(self.graph), verified=True))
        after = measure_captured(self.captured, self.apply(plan), keep_results=near)
        original = measure_captured(self.captured, self.captured.run_original, keep_results=near)
        equal = before.outputs_digest == after.outputs_digest == original.outputs_digest
        difference = None if equal or not near else largest_difference(original.results, after.results)
        if difference is not None and not difference.is_rounding:
            nudged = measure_captured(
                self.captured, self.captured.run_original, keep_results=True, last_digits=True
            ).results
            usual = largest_difference(original.results, nudged)
            difference = replace(difference, is_rounding=difference.is_within_noise(usual))
        return Measurement(
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            outputs_equal=equal,
            largest_difference=None if difference is None else difference.share,
            outputs_near=difference is not None and difference.is_rounding,
            original_bytes=original.peak_bytes,
            host_bytes=None if self.host is None else after.host_peak_bytes,
        )

    def measure_costs(self) -> Prices:
        """Run every op alone and return what it takes on its device; see `measure_prices`."""
        return measure_prices(self._readings.whole)


def _is_for(plan: Plan, graph: Graph) -> bool:
    return plan.graph_fingerprint == graph.fingerprint


def open_trusted(source: Any, dims: Mapping[str, int] | None = None) -> TorchModel:
    """Open a program like `TorchModel`; loading a file may run code from it."""
    return TorchModel(source, dims, trust=True)


class _Readings:
    """A program as it was captured, and with its largest updates in chunks; each is read once."""

    def __init__(self, captured: Captured, chunking: Chunking | None = None) -> None:
        self._chunking = chunking or Chunking()
        self.whole = self._reading(captured)

    @cached_property
    def to_rounding(self) -> "_Readings":
        return _Readings(self.whole.captured, self._chunking.to_rounding())

    @cached_property
    def in_chunks(self) -> Reading | None:
        return self._read(self._split)

    @cached_property
    def in_finer_chunks(self) -> Reading | None:
        return self._read(self._split_again)

    @property
    def left_whole(self) -> Sequence[str]:
        """What was left whole where most is in chunks, of the forms that somebody asked for."""
        split = self._split_again if "in_finer_chunks" in vars(self) else None
        return (split or self._split).left_whole if "in_chunks" in vars(self) else ()

    @cached_property
    def _split(self) -> ChunkedModule:
        return chunk_module(self.whole.captured.graph_module, self.whole.captured.inputs, self._chunking)

    @cached_property
    def _split_again(self) -> ChunkedModule | None:
        captured = self.whole.captured
        return chunk_module_in_two_passes(captured.graph_module, captured.inputs, self._chunking)

    def _read(self, split: ChunkedModule | None) -> Reading | None:
        captured = None if split is None else split.captured(self.whole.captured)
        if captured is None:
            return None
        module = outline_chunks(captured.graph_module) if self._chunking.fused else captured.graph_module
        return self._reading(replace(captured, graph_module=module))

    def _reading(self, captured: Captured) -> Reading:
        if not self._chunking.fused:
            return Reading(captured)
        return Reading(captured, scratch_under_inductor(captured.graph_module))
