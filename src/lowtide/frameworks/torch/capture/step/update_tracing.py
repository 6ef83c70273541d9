"""Letting an optimizer's Python code work on scalars that stand for numbers of a later run."""

import builtins
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from lowtide.frameworks.torch.capture.step.raw_step import unwrapped_step
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.internals.optimizers import SYMBOLIC_CHOICES
from lowtide.frameworks.torch.internals.symbolic_scalars import hint_of, symbol_name
from lowtide.frameworks.torch.rewrites.split_ops import FUSED_OPTIMIZERS

_SYMBOLIC = (torch.SymFloat, torch.SymInt)


@contextmanager
def symbolic_choices(optimizer: Optimizer) -> Generator[None]:
    """Let `max` and `min` in the optimizer's module take symbolic scalars: they become ops instead of branches."""
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

    Fused optimizers take settings as plain floats: they are called with the present values, and `connect` later gives
    their nodes the inputs instead. `torch.as_tensor` of a symbolic scalar becomes the op that makes a tensor of it.
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
        """Give the fused nodes of the traced graph their settings; `inputs` are the placeholders by symbol."""
        nodes = [node for node in graph.nodes if op_name(node.target) in FUSED_OPTIMIZERS]
        for node, call in zip(nodes, self._calls, strict=True):
            node.kwargs = {**node.kwargs, **{name: inputs[symbol] for name, symbol in call.items()}}
