"""Run an optimizer's own update on stand-ins for its parameters, state and settings.

With gradient scaling, the scale is an input of the graph, and a fused kernel decides whether to skip the update. For
compilers that fuse, the update is spelled out instead, and its changes are undone if it is skipped. The scaler updates
the scale after the graph has run, from the infinities that the graph found.
"""

import builtins
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.fx import Graph, Node
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.grad_scaler import unscale_spelled_out
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.internals.optimizers import SYMBOLIC_CHOICES, has_gradient_hooks, has_step_hooks
from lowtide.frameworks.torch.internals.symbolic_scalars import hint_of, symbol_name
from lowtide.frameworks.torch.rewrites.split_ops import FUSED_OPTIMIZERS

Groups = list[dict[str, Any]]


@contextmanager
def swapped(
    optimizer: Optimizer,
    parameters: Sequence[torch.Tensor],
    state: MutableMapping[Any, dict[str, Any]],
    adjust: Callable[[Groups], None] | None = None,
) -> Generator[None]:
    """Replace an optimizer's parameters and state, and its settings by `adjust`. Everything is restored at the end."""
    kept_groups, kept_state = optimizer.param_groups, optimizer.state
    remaining = iter(parameters)
    groups: Groups = [{**group, "params": [next(remaining) for _ in group["params"]]} for group in kept_groups]
    if adjust is not None:
        adjust(groups)
    before = [settings_of(group) for group in groups]
    swapping: Any = optimizer
    swapping.param_groups, swapping.state = groups, state
    try:
        yield
        if [settings_of(group) for group in groups] != before:
            raise UnsupportedError(f"{type(optimizer).__name__} changes its settings in a step; use another optimizer")
    finally:
        optimizer.param_groups, optimizer.state = kept_groups, kept_state


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a group that are not tensors, for comparison."""
    return {key: value for key, value in group.items() if key != "params" and not isinstance(value, torch.Tensor)}


def refuse_hooks(optimizer: Optimizer) -> None:
    """Raise UnsupportedError if the optimizer's step or its parameters have hooks, which a graph would omit."""
    if has_step_hooks(optimizer):
        raise UnsupportedError(
            f"{type(optimizer).__name__} has step hooks, which a graph cannot call; use before_update or after_update"
        )
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if has_gradient_hooks(parameter):
                raise UnsupportedError(
                    f"a parameter of shape {tuple(parameter.shape)} has gradient hooks, which a graph cannot call; "
                    "change gradients in before_update"
                )


def unwrapped_step(optimizer: Optimizer) -> Any:
    """Return the optimizer's update without its hooks and graph breaks."""
    function: Any = type(optimizer).step
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def raw_step(optimizer: Optimizer) -> None:
    """Run the optimizer's update without hooks."""
    try:
        with torch.no_grad():
            unwrapped_step(optimizer)(optimizer)
    except TypeError as error:
        if "closure" not in str(error):
            raise
        raise UnsupportedError(
            f"{type(optimizer).__name__}.step needs a closure; only a step without arguments can be captured"
        ) from error


def refuse_unless_fused(optimizer: Optimizer) -> None:
    """Raise UnsupportedError for an optimizer that cannot skip an update without reading values."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise UnsupportedError(
            "with a GradScaler, only a fused optimizer can skip updates inside a graph; "
            f"make {type(optimizer).__name__} with fused=True, or train in bfloat16 without a scaler"
        )


def scaled_step(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Let the scaler run the optimizer's update, without its hooks."""
    wrapped = vars(optimizer).get("step")
    vars(optimizer)["step"] = partial(raw_step, optimizer)
    try:
        scaler.step(optimizer)
    finally:
        del vars(optimizer)["step"]
        if wrapped is not None:
            vars(optimizer)["step"] = wrapped


def scaled_step_spelled_out(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Run any optimizer's update on unscaled gradients, and undo it if a gradient is infinite."""
    with torch.no_grad():
        skips = unscale_spelled_out(scaler, optimizer) > 0
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        kept = [(each, each.clone()) for each in parameters]
        states = [(entries, dict(entries)) for each in parameters if (entries := optimizer.state.get(each))]
        for _, before in states:
            before.update((key, value.clone()) for key, value in before.items() if isinstance(value, torch.Tensor))
        raw_step(optimizer)
        kept += [
            (now[key], old) for now, before in states for key, old in before.items() if isinstance(old, torch.Tensor)
        ]
        for value, old in kept:
            value.copy_(torch.where(skips, old, value))


_SYMBOLIC = (torch.SymFloat, torch.SymInt)


@contextmanager
def symbolic_choices(optimizer: Optimizer) -> Generator[None]:
    """Let `max` and `min` in the optimizer's module accept symbolic scalars: they become ops, not branches."""
    table = unwrapped_step(optimizer).__globals__
    shadowed = [name for name in SYMBOLIC_CHOICES if name not in table]
    table.update({name: _choice(name) for name in shadowed})
    try:
        yield
    finally:
        for name in shadowed:
            del table[name]


def _choice(name: str) -> Any:
    plain, symbolic = getattr(builtins, name), SYMBOLIC_CHOICES[name]

    def choose(*values: Any, **options: Any) -> Any:
        if len(values) == 2 and any(isinstance(value, _SYMBOLIC) for value in values):
            return symbolic(*values)
        return plain(*values, **options)

    return choose


class UpdateCalls(TorchFunctionMode):
    """Carries symbolic scalars through calls of an update that would turn them into constants.

    Fused optimizers accept settings only as plain floats. They are called with the present values, and `connect` later
    replaces these by the inputs. `torch.as_tensor` of a symbolic scalar becomes an op.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[dict[str, str]] = []
        """Per fused call, the symbol behind each argument."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = dict(kwargs or {})
        if func is torch.as_tensor and isinstance(args[0], torch.SymFloat):
            return torch.scalar_tensor(*args, **given)
        if getattr(func, "__name__", "") in FUSED_OPTIMIZERS:
            symbolic = {name: value for name, value in given.items() if isinstance(value, torch.SymFloat)}
            self._calls.append({name: symbol_name(value) for name, value in symbolic.items()})
            given.update({name: hint_of(value) for name, value in symbolic.items()})
        return func(*args, **given)

    def connect(self, graph: Graph, inputs: Mapping[str, Node]) -> None:
        """Pass settings to the fused nodes of the traced graph. `inputs` are the placeholders by symbol."""
        nodes = [node for node in graph.nodes if op_name(node.target) in FUSED_OPTIMIZERS]
        for node, call in zip(nodes, self._calls, strict=True):
            node.kwargs = {**node.kwargs, **{name: inputs[symbol] for name, symbol in call.items()}}
