"""Strides that differ between fake tensors and a run: of dimensions of size 1, and of gradients of losses.

They decide whether eager PyTorch takes an image for channels-last, and so which copies it makes.
"""
# pyright: reportPrivateUsage=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import _meta_registrations
from torch._C import DispatchKey
from torch._dispatch.python import no_python_dispatcher
from torch._ops import OpOverload
from torch._prims_common import make_contiguous_strides_for, suggest_memory_format
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.tensors import is_dense

_ATEN = torch.ops.aten
_VIEWS = {_ATEN.view.default, _ATEN._unsafe_view.default}
_COPIES = {_ATEN.clone.default, _ATEN._to_copy.default, _ATEN.native_dropout.default}
"""Pointwise ops that keep their operand's strides."""
_SCATTERS = {_ATEN.slice_scatter.default, _ATEN.select_scatter.default, _ATEN.diagonal_scatter.default}
"""Ops with contiguous results if their first operand overlaps itself; fake ones overlap in PyTorch 2.11."""
_CONTIGUOUS = {
    _ATEN._log_softmax_backward_data.default,
    _ATEN.glu_backward.default,
    _ATEN.mse_loss_backward.default,
    _ATEN.smooth_l1_loss_backward.default,
    _ATEN.huber_loss_backward.default,
}
"""Ops with contiguous results for operands of any strides."""
_ITERATED = {
    _ATEN.elu_backward.default,
    _ATEN.hardsigmoid_backward.default,
    _ATEN.hardswish_backward.default,
    _ATEN.hardtanh_backward.default,
    _ATEN.softplus_backward.default,
}
"""Pointwise ops whose fake results may have another operand's strides."""
_ITERATED_BACKWARDS = {_ATEN.leaky_relu_backward.default, _ATEN.threshold_backward.default}
"""The same, with kernels that take the last operand first."""
_ITERATED_ON_CPU = {_ATEN.native_dropout_backward.default}
"""The same, on CPUs only."""
_LIKE_FIRST = {_ATEN.binary_cross_entropy.default}
"""Ops whose results are like their first operand, if they are as large."""
_SUGGESTED = {
    _ATEN.native_channel_shuffle.default: 0,
    _ATEN.native_group_norm_backward.default: 1,
    _ATEN.reflection_pad2d_backward.default: 1,
    _ATEN.replication_pad2d_backward.default: 1,
    _ATEN.roll.default: 0,
}
"""Position of the operand whose strides suggest the memory format of the first result on a CPU."""
_CONTIGUOUS_ON_CPU = {
    _ATEN.log_sigmoid_forward.default,
    _ATEN.native_layer_norm_backward.default,
    _ATEN.rrelu_with_noise.default,
}
_BATCH_NORMS = {
    _ATEN._native_batch_norm_legit.default,
    _ATEN._native_batch_norm_legit_functional.default,
    _ATEN.native_batch_norm.default,
    _ATEN.native_batch_norm_backward.default,
}
"""Ops with a result on a CPU that is channels-last if the image is."""
_FORMATTED = {*_SUGGESTED, *_CONTIGUOUS_ON_CPU, *_BATCH_NORMS}
_WITH_NUMBERS = ("Tensor", "Scalar")
"""Overloads that treat a number as a tensor without dimensions."""
_IMAGES = 4
_active: list[Any] = []


def contiguous_as_in_run(op: Any, result: Any) -> Any:
    """Return a fake result, contiguous if a run's is."""
    if op not in _CONTIGUOUS or not _is_fixed(result) or result.is_contiguous():
        return result
    return result.new_empty(result.shape)


@contextmanager
def strides_as_in_eager() -> Generator[None]:
    """Give results of fixed sizes on fake tensors the strides of a run."""
    if _active:
        yield
        return
    dispatch = FakeTensorMode.__torch_dispatch__

    def corrected(self: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = dispatch(self, func, types, args, kwargs)
        if func in _FORMATTED:
            return _formatted(func, args, result)
        if not isinstance(result, FakeTensor):
            return result
        if func in _LIKE_FIRST and result.dim() and _is_fixed(result):
            strides = args[0].stride() if is_dense(args[0]) else torch.empty_like(args[0]).stride()
            return result.new_empty_strided(result.shape, strides)
        if func in _SCATTERS and _is_fixed(result) and 0 in result.stride():
            return result.new_empty(result.shape)
        result = contiguous_as_in_run(func, result)
        if not _may_differ(func, result, args):
            return result
        if func in _VIEWS:
            strides = _strides_of_view(args[0], result.shape)
        else:
            strides = _strides_of_pointwise(_operands(func, args, kwargs), result.shape)
        if strides == result.stride():
            return result
        return result.as_strided(result.shape, strides, result.storage_offset())

    _active.append(dispatch)
    FakeTensorMode.__torch_dispatch__ = corrected
    try:
        with _views_on_meta(), grouped_products_of_any_dtype():
            yield
    finally:
        FakeTensorMode.__torch_dispatch__ = _active.pop()


@contextmanager
def _views_on_meta() -> Generator[None]:
    """Correct views on the meta device, where functionalization gets its strides."""
    kernels = {op: op.py_kernels[DispatchKey.Meta] for op in _VIEWS if DispatchKey.Meta in op.py_kernels}

    def set_kernel(op: OpOverload, kernel: Any) -> None:
        op.py_kernels[DispatchKey.Meta] = kernel
        op._dispatch_cache.clear()

    def corrected(kernel: Any, source: torch.Tensor, *shape: Any) -> torch.Tensor:
        result = kernel(source, *shape)
        if not _is_unusual(source) or not _is_fixed(result):
            return result
        return result.as_strided(result.shape, _strides_of_view(source, result.shape), result.storage_offset())

    for op, kernel in kernels.items():
        set_kernel(op, partial(corrected, kernel))
    try:
        yield
    finally:
        for op, kernel in kernels.items():
            set_kernel(op, kernel)


@contextmanager
def grouped_products_of_any_dtype() -> Generator[None]:
    """Let fake tensors of any dtype have grouped products, as kernels do. PyTorch allows bfloat16 only."""
    original = _meta_registrations._meta_grouped_mm_common

    def product(left: Any, right: Any, scale_a: Any = None, scale_b: Any = None, **options: Any) -> Any:
        if scale_a is not None or left.dtype == torch.bfloat16 or left.dtype != right.dtype:
            return original(left, right, scale_a=scale_a, scale_b=scale_b, **options)
        return _meta_registrations._create_grouped_mm_output_tensor(
            left, right, options.get("offs"), options.get("out_dtype")
        )

    _meta_registrations._meta_grouped_mm_common = product
    try:
        yield
    finally:
        _meta_registrations._meta_grouped_mm_common = original


def _may_differ(func: Any, result: FakeTensor, args: Any) -> bool:
    if not isinstance(func, OpOverload) or func._schema.is_mutable or result.dim() < 2:
        return False
    is_iterated = func in _ITERATED or func in _ITERATED_BACKWARDS
    if is_iterated or (func in _ITERATED_ON_CPU and result.device.type == "cpu"):
        return _is_fixed(result)
    if func in _COPIES or (func not in _VIEWS and torch.Tag.pointwise not in func.tags):
        return False
    return any(isinstance(each, torch.Tensor) and _is_unusual(each) for each in args) and _is_fixed(result)


def _is_fixed(tensor: torch.Tensor) -> bool:
    return not any(isinstance(each, torch.SymInt) for each in (*tensor.shape, *tensor.stride()))


def _is_unusual(tensor: torch.Tensor) -> bool:
    if not _is_fixed(tensor) or tensor.stride() == make_contiguous_strides_for(tensor.shape):
        return False
    return 1 in tensor.shape or 0 in tensor.stride()


def _format_in_run(func: OpOverload, args: Any) -> torch.memory_format:
    if func in _SUGGESTED:
        return suggest_memory_format(args[_SUGGESTED[func]])
    if func in _CONTIGUOUS_ON_CPU:
        return torch.contiguous_format
    is_backward = func is _ATEN.native_batch_norm_backward.default
    image: torch.Tensor = args[1 if is_backward else 0]
    suggested = suggest_memory_format(image)
    if is_backward and not (_is_plain(args[0]) and suggest_memory_format(args[0]) == suggested):
        return suggested
    return torch.channels_last if _is_channels_last(image) and not image.is_contiguous() else torch.contiguous_format


def _is_plain(image: torch.Tensor) -> bool:
    return image.is_contiguous() or _is_channels_last(image)


def _formatted(func: OpOverload, args: Any, results: Any) -> Any:
    """Return results of an op on the CPU; those of the first one's shape get the memory format of a run."""
    first = results if isinstance(results, torch.Tensor) else results[0]
    tensors = [first, *pytree.tensors_in(args)]
    if not isinstance(first, FakeTensor) or first.device.type != "cpu" or not all(map(_is_fixed, tensors)):
        return results
    form = _format_in_run(func, args) if first.dim() == _IMAGES else torch.contiguous_format

    def formatted(result: Any) -> Any:
        if not isinstance(result, torch.Tensor) or result.shape != first.shape:
            return result
        made = torch.empty_like(result, memory_format=form)
        return result if made.stride() == result.stride() else made

    return formatted(results) if isinstance(results, torch.Tensor) else tuple(map(formatted, results))


def _strides_of_view(source: torch.Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    with unset_fake_temporarily(), no_python_dispatcher():
        return torch.empty_strided(source.shape, source.stride(), device="meta").view(shape).stride()


def _operands(func: OpOverload, args: Any, kwargs: Any) -> list[torch.Tensor]:
    operands = pytree.tensors_in([args, kwargs])
    if func in _ITERATED_BACKWARDS:
        return operands[::-1]
    has_number = func._overloadname in _WITH_NUMBERS and any(isinstance(each, int | float) for each in args[:2])
    return [*operands, operands[0].new_empty(())] if has_number else operands


def _strides_of_pointwise(operands: Sequence[torch.Tensor], shape: torch.Size) -> tuple[int, ...]:
    """Return the strides of a TensorIterator result (aten/src/ATen/TensorIterator.cpp)."""
    if all(operand.shape == shape for operand in operands):
        if all(operand.is_contiguous() for operand in operands):
            return make_contiguous_strides_for(shape)
        if len(shape) == _IMAGES and all(_is_channels_last(operand) for operand in operands):
            _, channels, height, width = shape
            return height * width * channels, 1, width * channels, channels
        if all(is_dense(operand) and operand.stride() == operands[0].stride() for operand in operands):
            return operands[0].stride()
    strides = [0] * len(shape)
    order = _innermost_first([_broadcast(operand, shape) for operand in operands], shape)
    if order == list(reversed(range(len(shape)))):
        return make_contiguous_strides_for(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def _broadcast(operand: torch.Tensor, shape: torch.Size) -> list[int]:
    lacking = len(shape) - operand.dim()
    sizes = zip(operand.shape, operand.stride(), shape[lacking:], strict=True)
    return [0] * lacking + [0 if size == 1 and wanted != 1 else stride for size, stride, wanted in sizes]


def _innermost_first(strides: Sequence[Sequence[int]], shape: torch.Size) -> list[int]:
    """Return dimensions in stride order, sorted as ambiguously as PyTorch does."""
    order = list(reversed(range(len(shape))))
    for last in range(1, len(order)):
        place = last
        for before in range(last - 1, -1, -1):
            comparison = _compare(strides, shape, order[before], order[place])
            if comparison > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif comparison < 0:
                break
    return order


def _compare(strides: Sequence[Sequence[int]], shape: torch.Size, first: int, second: int) -> int:
    for each in strides:
        if 0 in (each[first], each[second]):
            continue
        if each[first] != each[second]:
            return 1 if each[first] > each[second] else -1
        if shape[first] > shape[second]:
            return 1
    return 0
