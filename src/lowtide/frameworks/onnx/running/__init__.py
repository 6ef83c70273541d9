"""Run models in ONNX Runtime: planned sessions, and child processes for measurements.

`Session` runs a planned file in its order and serves all allocations from one arena. `children` measures models in
processes of their own (`child`), so that memory and crashes of the runtime stay separate.
"""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from lowtide.frameworks.tested_releases import ONNX_RUNTIME

with suppress(PackageNotFoundError):  # builds for other devices have other names
    ONNX_RUNTIME.warn(version("onnxruntime"))
