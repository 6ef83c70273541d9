"""Random draws of PyTorch's own kernels that a plan may recompute from a saved random state."""

from functools import cache
from typing import Any, cast

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import (
    define_operator,
    is_mutable,
    op_name,
    overload_name,
    overload_of,
    schema_of,
)
from lowtide.frameworks.torch.reading.effects import RANDOM_STATE, arguments_by_name, is_random

_STATE_BYTES = {"cpu": torch.default_generator.get_state().numel(), "cuda": 16}
"""Bytes of a generator's state by type of device."""
_drawn_by: dict[Any, Any] = {}
"""PyTorch's operator for each of ours."""


def is_repeatable(node: Node) -> bool:
    """Return whether a node is a random draw that can be recomputed from a saved random state.

    PyTorch's own functional operators with tensors on a CPU or a CUDA device can, such as attention with dropout.
    Operators of other libraries may use other generators.
    """
    overload = overload_of(node.target)
    if overload in _drawn_by:
        return True
    if overload is None or overload.namespace != "aten" or is_mutable(overload) or not is_random(node):
        return False
    return _device_of([value_of(each) for each in node.all_input_nodes]).type in _STATE_BYTES and (
        arguments_by_name(node).get("generator") is None
    )


def draws_as(overload: Any) -> Any:
    """Return the operator of PyTorch by which a repeatable one draws, or the given operator."""
    return _drawn_by.get(overload, overload)


@cache
def repeatable_op(overload: Any) -> Any:
    """Return the repeatable operator of a random one: its results follow the random state in a tuple.

    With the state as an argument, it draws the same numbers again, and the generator keeps its state.
    """

    def run(*args: Any, random_state: torch.Tensor | None = None, **kwargs: Any) -> Any:
        generator = _generator_of(_device_of([args, kwargs]))
        before = generator.get_state()
        if random_state is None:
            return _behind(before, overload(*args, **kwargs))
        generator.set_state(random_state)
        try:
            return _behind(random_state.clone(), overload(*args, **kwargs))
        finally:
            generator.set_state(before)

    def fake(*args: Any, random_state: torch.Tensor | None = None, **kwargs: Any) -> Any:
        del random_state
        n_bytes = _STATE_BYTES[_device_of([args, kwargs]).type]
        return _behind(torch.empty(n_bytes, dtype=torch.uint8, device="cpu"), overload(*args, **kwargs))

    name = f"repeatable_{op_name(overload)}_{overload_name(overload)}"
    arguments, returned = schema_of(overload)
    keywords = "" if "*," in arguments else "*, "
    schema = f"{name}({arguments}, {keywords}Tensor? {RANDOM_STATE}=None) -> (Tensor before, {returned})"
    operator = define_operator(schema, run, fake, tags=(torch.Tag.nondeterministic_seeded, torch.Tag.cudagraph_unsafe))
    _drawn_by[operator] = overload
    return operator


def _behind(state: torch.Tensor, results: Any) -> tuple[Any, ...]:
    return (state, *(cast("tuple[Any, ...]", results) if isinstance(results, tuple) else [results]))


def _device_of(values: Any) -> torch.device:
    tensors = pytree.tensors_in(values)
    return tensors[0].device if tensors else torch.device("meta")


def _generator_of(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
