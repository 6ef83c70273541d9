"""ONNX models: read, plan, reorder, and run in ONNX Runtime.

`lowtide.onnx` has the public names. Importing a module of this package loads onnx.
"""

from lowtide.frameworks.table import require

require("onnx")
