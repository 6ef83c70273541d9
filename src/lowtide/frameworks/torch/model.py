"""A PyTorch program as lowtide sees it: captured once, planned, applied, measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.errors import UnsupportedError, UsageError
from lowtide.frameworks.model import Measurement
from lowtide.frameworks.torch.apply import Applied, apply_captured
from lowtide.frameworks.torch.capture import capture
from lowtide.frameworks.torch.measure import compare, measure
from lowtide.frameworks.torch.read import read_captured
from lowtide.graph import Graph
from lowtide.plan import Plan


class TorchModel:
    """A captured PyTorch program and its graph."""

    def __init__(self, source: Any, dims: Mapping[str, int] | None = None) -> None:
        """Capture a program; see `lowtide.torch.capture` for what it may be and for the errors."""
        if dims:
            raise UsageError("--dim binds dimensions of ONNX files; a PyTorch program takes them from its inputs")
        self._captured = capture(source)
        self._graph = read_captured(self._captured)

    @property
    def graph(self) -> Graph:
        """The program as a graph."""
        return self._graph

    def apply(self, plan: Plan) -> Applied:
        """Return a callable with the program's signature that follows the plan."""
        return apply_captured(plan, self._captured)

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError: the applied program is a callable that holds the user's own objects."""
        raise UnsupportedError(
            f"a PyTorch program cannot be written to {path}; write OUTPUT.plan.json.gz and call lowtide.apply with it"
        )

    def measure(self, plan: Plan) -> Measurement:
        """Run the user's own call, the captured program as it stands, and the plan; all from the same state."""
        compared = compare(self._captured, plan, Plan.baseline(self._graph))
        return Measurement(
            before_bytes=compared.before_bytes,
            after_bytes=compared.after_bytes,
            outputs_equal=compared.outputs_equal,
            original_bytes=measure(self._captured, self._captured.run_original).peak_bytes,
        )
