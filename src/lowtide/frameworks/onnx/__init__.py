"""ONNX: models in, reordered models out, measured in ONNX Runtime.

The public names are in `lowtide.onnx`. Importing modules of this package loads onnx; `lowtide` itself does so only when
it is given an ONNX model.
"""

from lowtide.frameworks.table import require

require("onnx")
