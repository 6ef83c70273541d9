"""A PyTorch program as lowtide sees it: captured once, planned, applied, measured."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from lowtide.costs import Prices
from lowtide.errors import UnsupportedError, UsageError
from lowtide.frameworks.model import Measurement
from lowtide.frameworks.torch.apply import Applied, apply_captured
from lowtide.frameworks.torch.capture import capture
from lowtide.frameworks.torch.captured import Captured
from lowtide.frameworks.torch.exported_file import load_exported
from lowtide.frameworks.torch.measure_captured import measure_captured
from lowtide.frameworks.torch.measured_costs import measure_prices
from lowtide.frameworks.torch.pieces.split_updates import split_updates
from lowtide.frameworks.torch.read import read_captured
from lowtide.graph import Graph
from lowtide.offload import Host
from lowtide.plan import Plan


class TorchModel:
    """A PyTorch program and its graph."""

    def __init__(self, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None) -> None:
        """Capture a program: a path to a .pt2 file, or anything that `capture` takes, and with its errors."""
        if dims:
            raise UsageError("a PyTorch program takes its sizes from its example inputs; --dim is for ONNX models")
        self.host = host
        self.captured = capture(load_exported(Path(source)) if isinstance(source, str | Path) else source)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """No file holds a planned program: it lives in Python."""
        return ()

    @property
    def graph(self) -> Graph:
        """The program as a graph, with the host beside it."""
        return self._graph

    @property
    def in_pieces(self) -> Graph | None:
        """The program with the updates of its largest tensors done in pieces of rows; see `split_updates`."""
        return self._graph_in_pieces

    def beside(self, host: Host) -> "TorchModel":
        """Return the same program with a host that its plans may copy to."""
        return TorchModel(self.captured, host=host)

    @cached_property
    def _graph(self) -> Graph:
        return self._read(self.captured)

    @cached_property
    def _graph_in_pieces(self) -> Graph | None:
        return None if self._split is None else self._read(self._split)

    @cached_property
    def _split(self) -> Captured | None:
        return split_updates(self.captured)

    def _read(self, captured: Captured) -> Graph:
        graph = read_captured(captured)
        return graph if self.host is None else self.host.beside(graph)

    def apply(self, plan: Plan) -> Applied:
        """Return the program as a callable that follows the plan, one for its graph or for that in pieces.

        Raises FingerprintError for a plan of another graph.
        """
        pieces = self.in_pieces if plan.graph_fingerprint != self.graph.fingerprint else None
        is_split = pieces is not None and plan.graph_fingerprint == pieces.fingerprint
        return apply_captured(plan, self._split if is_split and self._split is not None else self.captured, self.host)

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError: a planned PyTorch program lives in Python, only its plan goes to a file."""
        raise UnsupportedError(
            f"cannot write a PyTorch program to {path}; write the plan (-o NAME.plan.json) "
            "and apply it in Python with lowtide.apply(plan, program)"
        )

    def measure(self, plan: Plan) -> Measurement:
        """Run the captured program in its own order, under the plan, and as the user wrote it, from one same state.

        Everything is compared bit for bit over all three: results, gradients, updated parameters and state.
        """
        before = measure_captured(self.captured, self.apply(Plan.baseline(self.graph)))
        after = measure_captured(self.captured, self.apply(plan))
        original = measure_captured(self.captured, self.captured.run_original)
        return Measurement(
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            outputs_equal=before.outputs_digest == after.outputs_digest == original.outputs_digest,
            original_bytes=original.peak_bytes,
            host_bytes=None if self.host is None else after.host_peak_bytes,
        )

    def measure_costs(self) -> Prices:
        """Run every op alone and return what it takes on its device; see `measure_prices`."""
        return measure_prices(self.captured)
