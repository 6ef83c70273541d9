"""ONNX: models in, reordered models out, measured in ONNX Runtime."""

from importlib.util import find_spec

from lowtide.errors import UsageError

if find_spec("onnx") is None:
    raise UsageError("reading ONNX models needs the onnx package; install lowtide[onnx]")

from lowtide.frameworks.onnx.load import ModelSource
from lowtide.frameworks.onnx.measure import MeasuredRun, measure_peak
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.read import read

__all__ = ["MeasuredRun", "ModelSource", "OnnxModel", "measure_peak", "read"]
