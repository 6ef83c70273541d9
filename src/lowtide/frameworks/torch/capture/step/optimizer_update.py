"""Run an optimizer's own update on other parameters, state and settings.

A fused kernel skips updates with infinite gradients itself. For compilers that fuse, the plain update is undone if a
gradient is infinite.
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
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.internals.optimizers import (
    SYMBOLIC_CHOICES,
    has_gradient_hooks,
    has_step_hooks,
    unscale_by_plain_ops,
)
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.internals.runtime import DispatchMode
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
    """Replace an optimizer's parameters and state, and adjust its settings, until the context ends."""
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


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params" and not isinstance(value, torch.Tensor)}


def refuse_hooks(optimizer: Optimizer) -> None:
    """Raise UnsupportedError for hooks, which a graph cannot call."""
    refuse_step_hooks(optimizer)
    for parameter in parameters_of(optimizer):
        if has_gradient_hooks(parameter):
            shape = tuple(parameter.shape)
            raise UnsupportedError(f"a parameter of shape {shape} has gradient hooks; use before_update instead")


def refuse_step_hooks(optimizer: Optimizer) -> None:
    if has_step_hooks(optimizer):
        raise UnsupportedError(f"{type(optimizer).__name__} has step hooks; use before_update or after_update instead")


def unwrapped_step(optimizer: Optimizer) -> Any:
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
        name = type(optimizer).__name__
        raise UnsupportedError(f"{name}.step needs a closure; use an optimizer that does not") from error


_BY_ELEMENT = frozenset(
    (
        *("copy_", "clone", "detach", "alias", "_to_copy", "view", "_unsafe_view", "unsqueeze", "squeeze"),
        *("empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "scalar_tensor"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "empty_strided", "_local_scalar_dense", "fill_", "zero_"),
    )
)
_ACROSS_ELEMENTS = ("_foreach_norm", "_foreach_max", "_foreach_powsum", "_foreach_mm")


class ByElement(DispatchMode):
    """Raises UnsupportedError for an op that computes across the elements of a tensor.

    Distributed parameters are updated by parts, which would give other results.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__()
        self._name = type(optimizer).__name__

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_large = any(each.numel() > 1 for each in tensors_in((args, kwargs))) and bool(tensors_in(result))
        if is_large and not _is_by_element(func):
            raise UnsupportedError(
                f"{self._name} computes {op_name(func)} over whole parameters, but they are distributed over ranks; "
                "use an element-wise optimizer, such as AdamW"
            )
        return result


def _is_by_element(target: Any) -> bool:
    name = op_name(target)
    if name.startswith("_foreach_"):
        return name not in _ACROSS_ELEMENTS
    return torch.Tag.pointwise in target.tags or name in FUSED_OPTIMIZERS or name in _BY_ELEMENT


def refuse_unless_fused(optimizer: Optimizer) -> None:
    """Raise UnsupportedError for an optimizer that reads values to skip an update."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise UnsupportedError(
            "with a GradScaler, only fused optimizers can skip updates in a graph; "
            f"make {type(optimizer).__name__} with fused=True, or train in bfloat16 without a scaler"
        )


def scaled_step(scaler: GradScaler, optimizer: Optimizer) -> None:
    wrapped = vars(optimizer).get("step")
    vars(optimizer)["step"] = partial(raw_step, optimizer)
    try:
        scaler.step(optimizer)
    finally:
        del vars(optimizer)["step"]
        if wrapped is not None:
            vars(optimizer)["step"] = wrapped


def scaled_step_spelled_out(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Run the update on unscaled gradients, and undo it if a gradient is infinite."""
    with torch.no_grad():
        skips = unscale_by_plain_ops(scaler, optimizer) > 0
        parameters = parameters_of(optimizer)
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
    """Make `max` and `min` of symbolic scalars ops instead of branches."""
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
    """Keeps symbolic scalars in calls that would make them constants.

    Fused kernels are called with present values, which `connect` then replaces by inputs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[dict[str, str]] = []

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
        nodes = [node for node in graph.nodes if op_name(node.target) in FUSED_OPTIMIZERS]
        for node, call in zip(nodes, self._calls, strict=True):
            node.kwargs = {**node.kwargs, **{name: inputs[symbol] for name, symbol in call.items()}}
