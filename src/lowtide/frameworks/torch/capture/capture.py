"""Capture any PyTorch program."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

from lowtide.core.collection import without_collection
from lowtide.core.errors import LowtideError, UnsupportedError
from lowtide.frameworks.torch.capture.capture_function import capture_function
from lowtide.frameworks.torch.capture.capture_graph_module import capture_exported, capture_graph_module
from lowtide.frameworks.torch.capture.step.capture_training_step import capture_training_step
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.capture.tracing import place_of
from lowtide.frameworks.torch.internals.fake_tensors import failures_unlogged, outside_of_fake_modes
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.math_attention import warn_of_math_attention


def capture(program: Any) -> Captured:
    """Capture a PyTorch program as one aten graph. Nothing is allocated, and the user's objects stay unchanged.

    A program is an ExportedProgram; a GraphModule with tensor metadata; (function or module, example
    inputs), with inputs as a tuple, a dict of keyword arguments or one tensor; (TrainingStep, example batch); or an
    earlier result of `capture`.

    Warns if attention on the device "meta" became plain products. Raises UnsupportedError if the program itself fails,
    and UnsupportedError or UsageError if it cannot be captured.
    """
    try:
        with outside_of_fake_modes(), failures_unlogged(), without_collection():
            captured = _capture(program)
        if captured is not program:
            warn_of_math_attention(captured.graph_module)
        return captured
    except LowtideError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        failure = f"{type(error).__name__}{place_of(error)}"
        raise UnsupportedError(f"the program cannot be captured: {failure}: {lines[0]}") from error


def _capture(program: Any) -> Captured:
    if isinstance(program, Captured):
        return program
    if isinstance(program, ExportedProgram):
        return capture_exported(program)
    if isinstance(program, GraphModule):
        return capture_graph_module(program)
    if not _is_call(program):
        name = type(program).__name__
        raise UnsupportedError(f"{name} is not a PyTorch program; pass (function or module, example inputs)")
    function, inputs = program
    args, kwargs = _call_of(inputs)
    if isinstance(function, TrainingStep):
        return capture_training_step(function, args, kwargs)
    return capture_function(function, args, kwargs)


def _is_call(program: object) -> bool:
    parts = cast("Sequence[object]", program) if isinstance(program, tuple | list) else ()
    if len(parts) != 2:
        return False
    function, inputs = parts
    is_function = isinstance(function, TrainingStep | nn.Module) or callable(function)
    return is_function and isinstance(inputs, tuple | list | Mapping | torch.Tensor)


def _call_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(cast("Mapping[str, Any]", inputs))
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    return tuple(inputs), {}
