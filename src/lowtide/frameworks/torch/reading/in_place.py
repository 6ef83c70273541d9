"""In-place forms of pure ops, which write into a dying input."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch.fx import Node

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.hints import is_always, is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import (
    argument_types,
    define_operator,
    op_name,
    overload_of,
    overloads_of,
    schema_arguments,
    schema_with,
)
from lowtide.frameworks.torch.internals.tensors import is_dense, storage_bytes
from lowtide.frameworks.torch.reading.lowering import InPlaceForm, Lowered, LoweredOp

aten = torch.ops.aten
_SOFTMAX = (aten._softmax, aten._log_softmax, aten._softmax_backward_data, aten._log_softmax_backward_data)
_BY_ROWS = frozenset(packet.default for packet in _SOFTMAX)
_SAME_ROUNDING = {aten.mul.Scalar: (aten.mul.out, "out")}
"""Out variants to use instead of an in-place one that rounds its number to 16 bits first."""
INTO = "into"
OUT_VARIANTS: dict[Any, tuple[Any, str]] = {}
"""PyTorch's operator and keyword for each of ours."""


def in_place_forms(op: LoweredOp, lowered: Lowered) -> tuple[InPlaceForm, ...]:
    """Return the in-place forms of an op, which are bit-equal to its plain form.

    Element-wise ops qualify, and on the CPU softmax and its gradient, which read each row before they write it. Output
    and arguments in its storage must have one dtype, shape and strides, for all symbolic sizes, and fill their
    storages: each element is read before it is overwritten.
    """
    if op not in lowered.in_place_forms:
        lowered.in_place_forms[op] = tuple(_find_forms(op, lowered))
    return lowered.in_place_forms[op]


def _find_forms(op: LoweredOp, lowered: Lowered) -> Iterator[InPlaceForm]:
    target = overload_of(op.node.target)
    if len(op.writes) != 1 or op.mutates or op.allocation is not None or target is None:
        return
    value = value_of(op.node)
    if not isinstance(value, torch.Tensor) or value.is_complex():  # complex kernels round otherwise in place
        return
    is_by_rows = target in _BY_ROWS and value.device.type == "cpu" and _is_contiguous(value)
    if not (torch.Tag.pointwise in target.tags or is_by_rows) or not _fills_storage(value):
        return
    variant = _variant_of(target)
    if variant is None:
        return
    form, out_argument = variant
    if is_by_rows and out_argument is not None:
        form, out_argument = by_rows(target, form, out_argument), INTO
    for position, operand in enumerate(op.node.args):
        if not isinstance(operand, Node) or not isinstance(value_of(operand), torch.Tensor):
            continue
        (buffer,) = lowered.buffers_of[operand]
        storage = lowered.buffers[buffer]
        if storage.held_elsewhere or storage.lifetime not in (Lifetime.INTERMEDIATE, Lifetime.DONATED):
            continue
        if any(operand is earlier for earlier in op.node.args[:position]):
            continue
        sharing = [other for other in op.node.all_input_nodes if buffer in lowered.buffers_of[other]]
        if not all(_same_form(value_of(other), value) for other in sharing) or not _fills_storage(value_of(operand)):
            continue
        if out_argument is not None or position == 0:
            yield InPlaceForm(buffer, op.writes[0], form, operand, out_argument)


@cache
def _variant_of(target: Any) -> tuple[Any, str | None] | None:
    """Return the out variant of an operator and its keyword, else its in-place variant and None, if there is one."""
    if target in _SAME_ROUNDING:
        return _SAME_ROUNDING[target]
    plain = argument_types(target)
    packet = target.overloadpacket
    for overload in overloads_of(packet):
        written = [argument for argument in schema_arguments(overload) if argument.is_write]
        if torch.Tag.generated in overload.tags or len(written) != 1 or not written[0].is_out:
            continue
        rest = argument_types(overload)
        if rest[:-1] == plain and rest[-1][0] == written[0].name:
            return overload, written[0].name
    twin = getattr(getattr(torch.ops, target.namespace), op_name(target) + "_", None)
    for overload in () if twin is None else overloads_of(twin):
        is_same = schema_arguments(overload)[0].is_write and argument_types(overload) == plain
        if is_same and torch.Tag.generated not in overload.tags:
            return overload, None
    return None


@cache
def by_rows(plain: Any, out: Any, out_argument: str) -> Any:
    """Return an operator like an out variant for contiguous tensors, but for any strides.

    A tensor may have other strides in a run than the fake one, and the kernel would return wrong numbers.
    """

    def run(*args: Any, into: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        if into.is_contiguous():
            return out(*args, **kwargs, **{out_argument: into})
        return into.copy_(plain(*args, **kwargs))

    arguments, _ = schema_with(plain, f"Tensor(a!) {INTO}")
    operator = define_operator(f"{op_name(plain)}_by_rows({arguments}) -> Tensor(a!)", run)
    OUT_VARIANTS[operator] = out, out_argument
    return operator


def _fills_storage(tensor: torch.Tensor) -> bool:
    if not is_symbolic(tensor):
        return is_dense(tensor) and tensor.numel() * tensor.element_size() == storage_bytes(tensor)
    bytes_stored = tensor.untyped_storage().nbytes()
    return _is_contiguous(tensor) and is_always(tensor.numel() * tensor.element_size() == bytes_stored)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    if not is_symbolic(tensor):
        return tensor.is_contiguous()
    strides = zip(tensor.stride(), _contiguous_strides(tensor.shape), strict=True)
    return all(is_always(stride == expected) for stride, expected in strides)


def _contiguous_strides(shape: Sequence[int]) -> list[int]:
    return [*accumulate(reversed(shape[1:]), mul, initial=1)][::-1] if shape else []


def _same_form(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.dtype, one.dim(), one.device) != (other.dtype, other.dim(), other.device):
        return False
    sizes = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    return all(is_always(size == same) for size, same in sizes)
