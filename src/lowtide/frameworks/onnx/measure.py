"""Measure the peak of live tensor bytes in file order."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto
from onnx.inliner import inline_local_functions, inline_selected_functions

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.arena.allocator import native_allocator
from lowtide.frameworks.onnx.loading.external_data import check_weights_present
from lowtide.frameworks.onnx.loading.load import serialize
from lowtide.frameworks.onnx.operators.nodes import all_nodes, operator_of
from lowtide.frameworks.onnx.operators.tables import EXPANDED
from lowtide.frameworks.onnx.running.inputs import Array, with_seeds
from lowtide.frameworks.onnx.running.session import open_session


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The result of one run."""

    peak_bytes: int
    """Inputs, and the most allocated at once: values, outputs, workspaces."""
    outputs: Sequence[Any]
    """In the model's order."""


def measure_peak(
    model: ModelProto, inputs: Mapping[str, Array], *, dims: Mapping[str, int] | None = None, folder: Path | None = None
) -> MeasuredRun:
    """Run a model once on one CPU thread; return the peak of ONNX Runtime's allocator, without weights.

    `folder` holds external data. Functions and operators without a kernel are expanded first, since ONNX Runtime would
    run their nodes last. Random nodes get seeds. Raises InputError for missing weights, UnsupportedError if ONNX
    Runtime does not run the model.
    """
    check_weights_present(model, folder)
    model = _expand(with_seeds(model))
    allocator = native_allocator()
    content = serialize(model, model.graph.name)
    session = open_session(content, dims=dims or {}, folder=folder, allocator=allocator)
    allocator.restart_peak()
    before = allocator.live_bytes
    try:
        outputs = session.run(None, inputs)
    except Exception as error:  # its exception types have no common base
        raise UnsupportedError(f"ONNX Runtime cannot run the model: {one_line(error)}") from None
    fed = sum(array.nbytes for array in inputs.values())
    return MeasuredRun(fed + allocator.peak_bytes - before, outputs)


def _expand(model: ModelProto) -> ModelProto:
    with suppress(RuntimeError):  # onnx fails on values of unknown type in functions
        if model.functions:
            model = inline_local_functions(model)
        used = {operator_of(node) for node in all_nodes(model.graph)}
        expanded = sorted(EXPANDED & used)
        return inline_selected_functions(model, expanded, inline_schema_functions=True) if expanded else model
    return model
