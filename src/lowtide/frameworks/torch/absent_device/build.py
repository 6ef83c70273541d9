"""Build a user's program on fake tensors of the CUDA device."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from lowtide.core.errors import UsageError, one_line
from lowtide.core.named_callable import named_callable, run_foreign
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.absent_device.forms import unpickled_forms
from lowtide.frameworks.torch.capture.module_tensors import modules_of
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.absent_cuda import exchange_contents
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode
from lowtide.frameworks.torch.reading.captured import Captured

Program = tuple[Any, Any]
"""A function, module or `TrainingStep`, with example inputs."""


def named_program(name: str, mode: FakeMode) -> Program:
    """Call a user's function and return its program on the device.

    It runs on fake tensors, so models of any size can be built, or on real ones if it needs their values. Raises
    UsageError if both fail.
    """
    make = named_callable(name)
    try:
        with mode:
            made = make()
    except Exception as error:
        try:
            made = make()
        except Exception:
            raise UsageError(f"{name}() failed: {type(error).__name__}: {one_line(error, 1000)}") from error
    return on_device(made, name, mode)


def sent_program(content: bytes, main: str | None, mode: FakeMode) -> Program:
    with mode:
        made = run_foreign("reading the program", lambda: unpickled_forms(content, main))
    return on_device(made, "the program", mode)


def on_device(program: Any, name: str, mode: FakeMode) -> Program:
    """Move modules, optimizer state and inputs to the device in place; tied tensors stay tied. Raises UsageError."""
    kind = type(cast("object", program)).__name__
    parts = cast("tuple[Any, ...]", program) if isinstance(program, tuple | list) else ()
    if len(parts) != 2 or not callable(parts[0]):
        raise UsageError(f"{name} is a {kind}; with --device give (function or module, inputs)")
    function, inputs = parts
    for module in modules_of(*_roots(function)):
        _move_module(module, mode)
    if isinstance(function, TrainingStep):
        for state in function.optimizer.state.values():
            state.update({key: _moved(value, mode) for key, value in state.items() if _is_large(value)})
    return function, pytree.tree_map_only(torch.Tensor, lambda each: _moved(each, mode), inputs)


def last_call(function: Any) -> int:
    """Let an accumulating step run its last call next, which needs the most memory; return its number of calls."""
    if not isinstance(function, TrainingStep):
        return 1
    function.done = function.accumulate - 1
    return function.accumulate


def with_gradients_kept(captured: Captured) -> Captured:
    """Return a call with earlier calls' gradients alive to its end, as in eager PyTorch."""
    kept = {Lifetime.DONATED: Lifetime.PERSISTENT}
    return replace(captured, inputs=tuple((name, kept.get(lifetime, lifetime)) for name, lifetime in captured.inputs))


def loss_of(program: Program) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    function, inputs = program
    if isinstance(function, TrainingStep):
        function = function.loss
    if isinstance(inputs, Mapping):
        return function, (), dict(cast("Mapping[str, Any]", inputs))
    return function, (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), {}


def _roots(function: Any) -> tuple[Any, ...]:
    return (function.model, function.loss_function) if isinstance(function, TrainingStep) else (function,)


def _move_module(module: nn.Module, mode: FakeMode) -> None:
    buffers: dict[int, torch.Tensor] = {}
    for parameter in module.parameters():
        if parameter.device.type != "cuda":
            exchange_contents(parameter, nn.Parameter(_moved(parameter, mode), parameter.requires_grad))
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffers.setdefault(id(buffer), _moved(buffer, mode)))


def _moved(tensor: torch.Tensor, mode: FakeMode) -> torch.Tensor:
    if tensor.device.type == "cuda":
        return tensor
    with mode, torch.no_grad():
        moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    return moved.requires_grad_(tensor.requires_grad) if tensor.is_leaf else moved


def _is_large(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0
