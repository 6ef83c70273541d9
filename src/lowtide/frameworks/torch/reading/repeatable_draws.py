"""Random draws of PyTorch's own kernels that a plan may recompute from a saved random state."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import (
    argument_types,
    define_operator,
    is_mutable,
    op_name,
    overload_name,
    overload_of,
    overloads_of,
    schema_with,
)
from lowtide.frameworks.torch.reading.effects import RANDOM_STATE, arguments_by_name, is_random

_STATE_BYTES = {"cpu": torch.default_generator.get_state().numel(), "cuda": 16}
"""Bytes of a generator's state by type of device."""
_ALLOCATES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
_FILLS = {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"}
"""Draws that overwrite their first argument without reading it."""
_WITH_STATE = {"_cudnn_rnn", "miopen_rnn"}
_GENERATOR = "generator"
_drawn_by: dict[Any, Any] = {}


def is_repeatable(node: Node) -> bool:
    """Return whether Inductor's programs can recompute a draw from a saved random state.

    PyTorch's own functional operators on a CPU or a CUDA device can. Other libraries may use other generators.
    """
    overload = overload_of(node.target)
    if overload in _drawn_by:
        return True
    if is_mutable(overload) or not _uses_default_generator(node):
        return False
    return _device_of([value_of(each) for each in node.all_input_nodes]).type in _STATE_BYTES


def can_draw_again(node: Node) -> bool:
    """Return whether the eager compiler can recompute a draw, which makes or fills a tensor.

    On a CPU only draws that take a generator can, since a saved state of the default one would need memory there.
    """
    overload = overload_of(node.target)
    if not _uses_default_generator(node) or (is_mutable(overload) and op_name(overload) not in _FILLS):
        return False
    device = device_of_draw(node).type
    return device == "cuda" or (device in _STATE_BYTES and _with_generator(overload) is not None)


def device_of_draw(node: Node) -> torch.device:
    """Return the device of the first result. Attention may return its random state on the CPU."""
    return _device_of(value_of(node))


def _uses_default_generator(node: Node) -> bool:
    overload = overload_of(node.target)
    if overload is None or overload.namespace != "aten" or op_name(overload) in _WITH_STATE:
        return False
    return is_random(node) and arguments_by_name(node).get(_GENERATOR) is None


def allocates_only(node: Node) -> bool:
    return op_name(node.target) in _ALLOCATES


def fills(node: Node) -> bool:
    return op_name(node.target) in _FILLS and can_draw_again(node)


def finishes_draw(node: Node) -> bool:
    """Return whether a node changes each element of its operands alone."""
    return torch.Tag.pointwise in overload_of(node.target).tags and not is_random(node)


def draws_as(overload: Any) -> Any:
    """Return PyTorch's operator for one of ours, others unchanged."""
    return _drawn_by.get(overload, overload)


@cache
def repeatable_op(overload: Any) -> Any:
    """Return the repeatable operator of a random one: its results follow the random state in a tuple.

    Given that state, it draws the same numbers again, and the generator keeps its state.
    """

    def run(*args: Any, random_state: torch.Tensor | None = None, **kwargs: Any) -> Any:
        generator = _generator_of(_device_of([args, kwargs]))
        if random_state is None:
            return _behind(generator.get_state(), overload(*args, **kwargs))
        return _behind(random_state.clone(), _drawn_from(random_state, generator, lambda: overload(*args, **kwargs)))

    def fake(*args: Any, random_state: torch.Tensor | None = None, **kwargs: Any) -> Any:
        del random_state
        n_bytes = _STATE_BYTES[_device_of([args, kwargs]).type]
        return _behind(torch.empty(n_bytes, dtype=torch.uint8, device="cpu"), overload(*args, **kwargs))

    name = f"repeatable_{op_name(overload)}_{overload_name(overload)}"
    arguments, returned = schema_with(overload, f"Tensor? {RANDOM_STATE}=None")
    schema = f"{name}({arguments}) -> (Tensor before, {returned})"
    operator = define_operator(schema, run, fake, tags=(torch.Tag.nondeterministic_seeded, torch.Tag.cudagraph_unsafe))
    _drawn_by[operator] = overload
    return operator


def _saved_generator(device: torch.device) -> torch.Generator:
    return _generator_of(device).clone_state()


def _copied_generator(saved: torch.Generator) -> torch.Generator:
    return saved.clone_state()


SAVED_GENERATOR = define_operator("saved_generator(Device device) -> Generator", _saved_generator)
COPIED_GENERATOR = define_operator("copied_generator(Generator saved) -> Generator", _copied_generator)


@cache
def draw_again(overload: Any) -> tuple[Any, str]:
    """Return the operator that repeats a draw with a copied generator, and that argument's name."""
    known = _with_generator(overload)
    if known is not None:
        return known, _GENERATOR

    def run(*args: Any, random_state: torch.Generator, **kwargs: Any) -> Any:
        generator = _generator_of(_device_of([args, kwargs]))
        return _drawn_from(random_state.get_state(), generator, lambda: overload(*args, **kwargs))

    name = f"repeated_{op_name(overload)}_{overload_name(overload)}"
    arguments, returned = schema_with(overload, f"Generator {RANDOM_STATE}")
    return define_operator(f"{name}({arguments}) -> ({returned})", run), RANDOM_STATE


@cache
def _with_generator(overload: Any) -> Any:
    plain = argument_types(overload)
    if any(name == _GENERATOR for name, _, _ in plain):
        return overload
    for other in overloads_of(overload.overloadpacket):
        arguments = argument_types(other)
        rest = [each for each in arguments if each[0] != _GENERATOR]
        if not is_mutable(other) and len(rest) < len(arguments) and rest == plain:
            return other
    return None


def _drawn_from(state: torch.Tensor, generator: torch.Generator, draw: Callable[[], Any]) -> Any:
    before = generator.get_state()
    generator.set_state(state)
    try:
        return draw()
    finally:
        generator.set_state(before)


def _behind(state: torch.Tensor, results: Any) -> tuple[Any, ...]:
    return (state, *(cast("tuple[Any, ...]", results) if isinstance(results, tuple) else [results]))


def _device_of(values: Any) -> torch.device:
    tensors = pytree.tensors_in(values)
    return tensors[0].device if tensors else torch.device("meta")


def _generator_of(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
