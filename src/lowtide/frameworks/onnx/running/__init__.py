"""Run models in ONNX Runtime: planned sessions, and child processes for measurements."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from lowtide.frameworks.tested_releases import ONNX_RUNTIME

with suppress(PackageNotFoundError):  # builds for other devices have other names
    ONNX_RUNTIME.warn(version("onnxruntime"))
