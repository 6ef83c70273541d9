"""An ONNX model as lowtide sees it: read once, planned, written back, measured."""

from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto

from lowtide.costs import Prices
from lowtide.errors import InputError, UnsupportedError
from lowtide.files import write_pieces
from lowtide.frameworks.model import Measurement
from lowtide.frameworks.onnx.apply import planned_order
from lowtide.frameworks.onnx.loading.external_data import check_weights_reachable
from lowtide.frameworks.onnx.loading.load import (
    ModelSource,
    describe_source,
    load_model,
    load_whole_model,
    source_folder,
    whole_content,
)
from lowtide.frameworks.onnx.loading.light import light_model
from lowtide.frameworks.onnx.loading.metadata import PLANNED
from lowtide.frameworks.onnx.loading.reordered import reordered_model
from lowtide.frameworks.onnx.measure import equal_outputs, measure_peak
from lowtide.frameworks.onnx.read import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.graph import Graph
from lowtide.plan import Plan


class OnnxModel:
    """An ONNX model and its graph, read once."""

    def __init__(self, source: ModelSource, dims: Mapping[str, int] | None = None) -> None:
        """Read a model from a path or an object; its weights are never loaded.

        `dims` gives sizes to dynamic dimensions by name. One without a name is called after its input and place: "x.0".
        Raises MalformedInputError for a broken model, UnsupportedError for dynamic dimensions without a size (it lists
        all of them), UsageError for sizes that do not fit the model, GraphError for sizes no machine can hold.
        """
        self._source = source
        self._model = load_model(source)
        self._name = describe_source(source)
        self._folder = source_folder(source)
        self._dims = dict(dims or {})
        self._translation = read_model(self._model, self._dims, self._name)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of ONNX files end."""
        return (".onnx",)

    @property
    def graph(self) -> Graph:
        """The model as a graph."""
        return self._translation.graph

    @property
    def in_chunks(self) -> None:
        """None: only the order of an ONNX model changes."""
        return None

    def apply(self, plan: Plan) -> ModelProto:
        """Return the model with its nodes in the plan's order and nothing else changed; the original stays.

        Raises FingerprintError for a plan of another graph, UnsupportedError for one that is more than an order,
        VerificationError for one that breaks the program.
        """
        return ModelProto.FromString(b"".join(self._reordered(plan, {})))

    def save(self, plan: Plan, path: Path) -> None:
        """Write the reordered model, whole or not at all; weights in other files stay where they are.

        Its metadata says that its order is planned; nothing else changes. Raises UnsupportedError when the new place
        cannot reach those files, UsageError when it cannot be written.
        """
        check_weights_reachable(self._model, self._folder, path.parent)
        write_pieces(path, self._reordered(plan, {PLANNED: "file"}))

    def _reordered(self, plan: Plan, metadata: Mapping[str, str]) -> list[bytes | memoryview]:
        order = planned_order(self._model, self._translation, plan)
        content = whole_content(self._source)
        if not isinstance(self._source, ModelProto) and _differ(self._model, light_model(content)):
            raise InputError(f"{self._name} has changed since it was read; plan it again")
        return reordered_model(content, order, metadata)

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
