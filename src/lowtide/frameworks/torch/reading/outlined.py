"""Programs that a compiler calls as one op: PyTorch's own kernels run them, in the order they are written in."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.internals.operators import define_operator, op_name
from lowtide.frameworks.torch.reading.effects import OUTLINED, arguments_by_name


@dataclass(frozen=True, slots=True)
class Outlined:
    """A program that is called as one op."""

    run: Callable[..., Sequence[torch.Tensor]]
    forms: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device], ...]
    """The results: sizes, strides, types, devices."""
    scratch_bytes: int
    """What it needs at once, besides what it is given and what it returns."""
    flops: int
    traffic_bytes: int


_known: dict[str, Outlined] = {}


def hold(module: GraphModule, *, scratch_bytes: int, flops: int, traffic_bytes: int) -> str:
    """Keep a program for as long as the process runs, and return the key by which the op finds it.

    It takes tensors and numbers, and returns tensors. The key tells programs apart by their code and the forms of what
    they take and return, so that compiled code that is found in a cache finds its program, once that was made again.
    """
    results = [value_of(node) for node in outputs_of(module)]
    forms = tuple((value.shape, value.stride(), value.dtype, value.device) for value in results)
    given = [_form_of(value_of(node)) for node in module.graph.find_nodes(op="placeholder")]
    key = hashlib.sha256(repr((module.code, given, forms, scratch_bytes)).encode()).hexdigest()[:32]
    for node in module.graph.nodes:
        node.meta.clear()  # fake values would keep the mode alive that they were traced in
    _known[key] = Outlined(module.forward, forms, scratch_bytes, flops, traffic_bytes)
    return key


def outlined_by(call: Node) -> Outlined | None:
    """Return the program that a call runs; None for a call of anything else."""
    return _known[arguments_by_name(call)["key"]] if op_name(call.target).startswith(OUTLINED) else None


@cache
def outlined_op(n_results: int) -> Any:
    """Return the op that runs a program with so many results: `(given, overwritten, numbers, key)`.

    PyTorch turns ops that overwrite what they are given into others only where the number of results is known.
    """

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
