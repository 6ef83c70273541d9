"""Outlined programs, called as one op."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.internals.operators import define_operator, op_name
from lowtide.frameworks.torch.reading.effects import OUTLINED, arguments_by_name, runs_on_host


class Work(NamedTuple):
    """The work of one kernel."""

    traffic_bytes: int
    flops: int = 0
    dtype: str = ""
    """Of the operands that it multiplies, "" for loops."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """A program called as one op."""

    run: Callable[..., Sequence[torch.Tensor]]
    forms: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device], ...]
    """Size, strides, dtype and device of each result."""
    scratch_bytes: int
    """Without arguments and results."""
    work: Sequence[Work]
    parameters: tuple[tuple[int, int], ...] = ()
    """Parameters that an update on the host computes: positions among overwritten operands and results, and among
    inputs."""

    @property
    def flops(self) -> int:
        return sum(each.flops for each in self.work)

    @property
    def traffic_bytes(self) -> int:
        return sum(each.traffic_bytes for each in self.work)


_known: dict[str, Outlined] = {}


def register_program(
    module: GraphModule,
    *,
    scratch_bytes: int,
    work: Sequence[Work],
    run: Callable[..., Sequence[torch.Tensor]] | None = None,
) -> str:
    """Register a program for this process, and return its key, a hash of its code and forms.

    PyTorch's own kernels run it, or else `run`.
    """
    results = [value_of(node) for node in outputs_of(module)]
    forms = tuple((value.shape, value.stride(), value.dtype, value.device) for value in results)
    given = [_form_of(value_of(node)) for node in module.graph.find_nodes(op="placeholder")]
    key = hashlib.sha256(repr((module.code, given, forms, scratch_bytes)).encode()).hexdigest()[:32]
    for node in module.graph.nodes:
        node.meta.clear()  # fake values would keep their mode alive
    _known[key] = Outlined(run or module.forward, forms, scratch_bytes, work)
    return key


def register_update(program: Outlined, code: str) -> str:
    """Register an update on the host for this process, and return its key."""
    key = hashlib.sha256(repr((code, program.forms, program.work, program.parameters)).encode()).hexdigest()[:32]
    _known[key] = program
    return key


def outlined_program(key: str) -> Outlined:
    return _known[key]


def outlined_by(call: Node) -> Outlined | None:
    is_call = op_name(call.target).startswith(OUTLINED) or runs_on_host(call)
    return _known[arguments_by_name(call)["key"]] if is_call else None


@cache
def outlined_op(n_results: int) -> Any:
    """Return the op for programs with `n_results` results, a number that functionalization needs."""

    def run(given: Sequence[Any], overwritten: Sequence[Any], numbers: Sequence[Any], key: str) -> Any:
        return _returned(list(_known[key].run(*given, *overwritten, *numbers)))

    def fake(given: Sequence[Any], overwritten: Sequence[Any], numbers: Sequence[Any], key: str) -> Any:
        forms = _known[key].forms
        return _returned(
            [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype, device in forms]
        )

    results = {0: "()", 1: "Tensor"}.get(n_results, f"({', '.join(['Tensor'] * n_results)})")
    schema = f"{OUTLINED}{n_results}(Tensor[] given, Tensor(a!)[] overwritten, Scalar[] numbers, str key) -> {results}"
    return define_operator(schema, run, fake, tags=(torch.Tag.needs_exact_strides,))


def _returned(results: list[torch.Tensor]) -> Any:
    return (tuple(results) if len(results) > 1 else results[0]) if results else None


def _form_of(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
