"""ONNX models: read, plan, reorder, and run in ONNX Runtime.

The public names are in `lowtide.onnx`. Imports load onnx.
"""

from lowtide.frameworks.table import require

require("onnx")
