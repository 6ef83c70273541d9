"""ONNX: models in, reordered models out, measured in ONNX Runtime."""

from lowtide.errors import UsageError

try:
    import onnx as _onnx  # noqa: F401
except ImportError:
    raise UsageError("reading ONNX models needs the onnx package; install lowtide[onnx]") from None

from lowtide.frameworks.onnx.load import ModelSource
from lowtide.frameworks.onnx.measure import MeasuredRun, measure_peak
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.read import read

__all__ = ["MeasuredRun", "ModelSource", "OnnxModel", "measure_peak", "read"]
