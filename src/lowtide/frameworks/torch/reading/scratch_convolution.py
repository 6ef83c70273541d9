"""Scratch memory of convolutions on the CPU, by oneDNN and by PyTorch's own kernels."""

import math
from typing import Any

import torch

from lowtide.frameworks.torch.internals.runtime import onednn_computes
from lowtide.frameworks.torch.internals.tensors import bytes_of, contiguous_copy, is_channels_last
from lowtide.frameworks.torch.reading.effects import Arguments
from lowtide.frameworks.torch.reading.workspaces import KernelMemory, memory_of_call

_BLOCK, _WIDE_BLOCK = 16, 64
"""Channels per block in oneDNN; the maximum for weights of channels-last images."""
_FEWEST_BLOCKED_CHANNELS = 4
_WIDEST_DIRECT_KERNEL, _WIDEST_DIRECT_DEPTHWISE = 13, 6
"""Wider kernels unfold images for the weight gradient."""
_SMALL_IMAGES, _COUNTED_SIZES = 20480, 4
"""Most elements in a batch of one for PyTorch's own kernels, which leave out the width of videos."""
_VIDEO = 5
"""Dimensions of a batch of videos."""
_OWN_KERNEL_WIDTH, _OWN_KERNEL_BATCH = 1, 16
"""On one thread, PyTorch's own kernels compute this width in smaller batches."""
_FORWARD_BUFFERS, _BACKWARD_BUFFERS = 26 * 2**10, 32 * 2**10
"""Accumulators and bias of oneDNN, one thread."""
_FEW_BUFFERS = 4 * 2**10
"""The same if all is blocked."""
_MOST_WITH_BORDER = 96 * 2**10
"""Maximum of a channels-last image copied with a border."""
_COPIES_OF_SUMS = 3
"""Depthwise weight gradients of 16-bit numbers, in single precision."""
_MARGIN = 12
"""Border of a copied image, in pixels beyond the kernel."""


def convolution(given: Arguments, result: Any) -> int:
    image, weight = given["input"], given["weight"]
    if image.dim() not in (3, 4, 5):
        return 0
    if not _goes_to_onednn(given, image, weight):
        return _native(given, image, weight, result)
    measured = _measured(torch.ops.aten.convolution.default, given, result)
    return _onednn(given, image, weight, result) if measured is None else measured.scratch_bytes


def convolution_backward(given: Arguments, _: Any) -> int:
    gradient, image, weight = given["grad_output"], given["input"], given["weight"]
    if image.dim() not in (3, 4, 5):
        return 0
    if not _goes_to_onednn(given, image, weight):
        return _native_backward(given, gradient, image, weight)
    measured = _measured(torch.ops.aten.convolution_backward.default, given, gradient)
    return _onednn_backward(given, gradient, image, weight) if measured is None else measured.scratch_bytes


def _measured(function: Any, given: Arguments, result: torch.Tensor) -> KernelMemory | None:
    """Return the memory of a small convolution for which the rules are wide bounds.

    These are convolutions of videos, transposed ones, depthwise ones of channels-last images, and those of 16-bit
    numbers, whose kernels differ most between processors.
    """
    image, weight = given["input"], given["weight"]
    work = max(image.numel(), result.numel()) * math.prod(weight.shape[1:])
    in_blocks = _is_depthwise(given, weight) and (is_channels_last(image) or is_channels_last(weight))
    is_bounded = given["transposed"] or image.dim() == _VIDEO or in_blocks or not _is_single(image)
    return memory_of_call(function, given, work) if is_bounded else None


def _is_depthwise(given: Arguments, weight: torch.Tensor) -> bool:
    return given["groups"] > 1 and weight.shape[1] == 1


def _goes_to_onednn(given: Arguments, image: torch.Tensor, weight: torch.Tensor) -> bool:
    return onednn_computes(image.dtype) and not _is_small(given, image, weight)


def _is_small(given: Arguments, image: torch.Tensor, weight: torch.Tensor) -> bool:
    if image.dtype != torch.float32:
        return False
    widths = (weight.shape[-1], weight.shape[-2] if image.dim() > 3 else 1)
    is_narrow = widths == (_OWN_KERNEL_WIDTH, _OWN_KERNEL_WIDTH) and image.shape[0] < _OWN_KERNEL_BATCH
    skips = any(step > 1 for step in (*given["stride"], *given["dilation"]))
    if is_narrow and not skips and torch.get_num_threads() == 1:
        return True
    counted = math.prod(image.shape[:_COUNTED_SIZES])
    is_large = given["groups"] > 1 or min(widths) > 3 or image.shape[0] > 1 or counted > _SMALL_IMAGES
    return not is_large


def _padded(channels: int, block: int = _BLOCK) -> int:
    return math.ceil(channels / block) * block


def _blocked(image: torch.Tensor) -> int:
    return bytes_of(image) // image.shape[1] * _padded(image.shape[1])


def _is_single(tensor: torch.Tensor) -> bool:
    return tensor.element_size() >= torch.float32.itemsize


def _summed(weight: torch.Tensor) -> int:
    """Return the bytes of a weight's gradient in single precision."""
    return weight.numel() * torch.float32.itemsize


def _one_of_each(images: torch.Tensor, results: torch.Tensor) -> int:
    """Return the bytes of one image and one result that kernels of 16-bit numbers transpose."""
    return _blocked(images) // images.shape[0] + _blocked(results) // results.shape[0]


def _goes_in_blocks(image: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return image.shape[1] >= _FEWEST_BLOCKED_CHANNELS or groups > 1 or math.prod(weight.shape[2:]) == 1


def _blocked_input(image: torch.Tensor, weight: torch.Tensor, groups: int) -> int:
    return _blocked(image) if _goes_in_blocks(image, weight, groups) else 0


def _blocked_weight(weight: torch.Tensor, groups: int, *, both: bool) -> int:
    """Count a weight with output channels, or both sides', in blocks."""
    outer, inner = weight.shape[0], weight.shape[1]
    if groups == 1:
        wide = _WIDE_BLOCK if not both and outer > _WIDE_BLOCK // 2 else _BLOCK
        outer, inner = _padded(outer, wide), _padded(inner) if both else inner
    elif inner == 1:
        outer = _padded(outer)
    else:
        outer, inner = groups * _padded_in_group(outer // groups), _padded_in_group(inner)
    return outer * inner * math.prod(weight.shape[2:]) * weight.element_size()


def _padded_in_group(channels: int) -> int:
    """Groups may have half blocks."""
    return channels if 2 * channels % _BLOCK == 0 else _padded(channels)


def _copy(tensor: torch.Tensor, channels_last: bool) -> int:
    if not channels_last:
        return contiguous_copy(tensor)
    form = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return 0 if tensor.is_contiguous(memory_format=form) else bytes_of(tensor)


def _onednn(given: Arguments, image: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> int:
    last = is_channels_last(image) or is_channels_last(weight)
    copies = _copy(image, last) + _copy(weight, last)
    if (math.prod(weight.shape[2:]) == 1 or _is_skipping(given)) and not _is_single(image):
        copies += _one_of_each(image, result)
    groups = given["groups"]
    blocked_weight = _blocked_weight(weight, groups, both=not last and _goes_in_blocks(image, weight, groups))
    if given["transposed"]:
        made = 3 * bytes_of(result) // 2 if last else max(bytes_of(image) + bytes_of(result), 2 * bytes_of(result))
        return copies + blocked_weight + made + _FORWARD_BUFFERS
    if last:
        return copies + blocked_weight + _with_border(given, image) + _FORWARD_BUFFERS
    # the blocked result is written out after the blocked inputs are freed
    computing = _blocked_input(image, weight, groups) + blocked_weight + _blocked(result) - bytes_of(result)
    return copies + max(computing + _skipping(given, image, weight, result), _blocked(result)) + _FEW_BUFFERS


def _skipping(given: Arguments, image: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> int:
    """Count one image without the pixels that one-pixel kernels skip."""
    if math.prod(weight.shape[2:]) != 1 or not _is_skipping(given):
        return 0
    return math.prod(result.shape[2:]) * _padded(image.shape[1]) * image.element_size()


def _with_border(given: Arguments, image: torch.Tensor) -> int:
    if not _is_skipping(given):
        return 0
    padded = (size + 2 * border for size, border in zip(image.shape[2:], given["padding"], strict=True))
    return min(math.prod(padded) * image.shape[1] * image.element_size(), _MOST_WITH_BORDER)


def _is_skipping(given: Arguments) -> bool:
    return any(step > 1 for step in given["stride"])


def _onednn_backward(given: Arguments, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor) -> int:
    last = is_channels_last(image) or is_channels_last(weight)
    wants_image, wants_weight, _ = given["output_mask"]
    results = (bytes_of(image) if wants_image else 0) + (bytes_of(weight) if wants_weight else 0)
    copies = _copy(gradient, last) + _copy(image, last) + _copy(weight, last)
    if last and _is_depthwise(given, weight):  # one kernel puts every channel into its own block
        copies += _BLOCK * _BLOCK * (bytes_of(weight) if _is_single(weight) else _COPIES_OF_SUMS * _summed(weight))
    buffers = _BACKWARD_BUFFERS if last or _is_skipping(given) else _FEW_BUFFERS
    for_image = _image_gradient(given, gradient, image, weight, last) if wants_image else 0
    for_weight = _weight_gradient(given, gradient, image, weight, last) if wants_weight else 0
    if wants_image and wants_weight:
        for_weight += bytes_of(image)  # the image's gradient is computed first
    return copies + max(0, for_image - results, for_weight - results) + buffers


def _image_gradient(
    given: Arguments, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, last: bool
) -> int:
    blocked_weight = _blocked_weight(weight, given["groups"], both=True)
    skips = given["groups"] == 1 and _is_skipping(given)
    # a strided kernel copies an image of the gradient with a margin, plus another one in work
    margins = (size + kernel + _MARGIN for size, kernel in zip(gradient.shape[2:], weight.shape[2:], strict=True))
    border = 2 * math.prod(margins) * gradient.shape[1] * gradient.element_size() if skips else 0
    if last:
        return bytes_of(image) + blocked_weight + border
    if skips:  # the gradient is computed in channels-last format and copied twice
        return max(bytes_of(gradient) + blocked_weight + bytes_of(image) + border, 3 * bytes_of(image))
    return max(_blocked(gradient) + blocked_weight + _blocked(image), _blocked(image) + bytes_of(image))


def _weight_gradient(
    given: Arguments, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, last: bool
) -> int:
    """Return the peak bytes of computing the weight's gradient."""
    single = _summed(weight)
    widest = _WIDEST_DIRECT_DEPTHWISE if _is_depthwise(given, weight) else _WIDEST_DIRECT_KERNEL
    is_wide = weight.shape[-1] > widest
    if is_wide or (image.dim() > 3 and weight.shape[-2] > image.shape[-2]):  # then the images are unfolded
        unfolded = math.prod((*weight.shape[1:], *gradient.shape[2:])) * image.element_size()
        return 5 * single + (2 if last else 1) * unfolded
    groups = given["groups"]
    both = _goes_in_blocks(image, weight, groups)
    blocked = _blocked_weight(weight, groups, both=both) * torch.float32.itemsize // weight.element_size()
    # 16-bit numbers are summed in single precision
    rounded = 0 if _is_single(weight) else 2 * (single + _FEW_BUFFERS) + _one_of_each(image, gradient)
    skipped = _skipping(given, image, weight, gradient)
    if last:
        return blocked + 2 * bytes_of(weight) + rounded + skipped
    computing = _blocked_input(image, weight, groups) + _blocked(gradient) + blocked + skipped
    if groups > 1:
        computing += blocked
    return max(computing, blocked + bytes_of(weight)) + rounded


def _unfolded(given: Arguments, image: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> int:
    is_plain = math.prod(weight.shape[2:]) == 1 and not any(given["padding"])
    if given["transposed"]:
        return math.prod((image.shape[0], *weight.shape[1:], *image.shape[2:])) * image.element_size()
    if is_plain and all(step == 1 for step in given["stride"]):
        return 0
    return _columns(weight, result)


def _columns(weight: torch.Tensor, result: torch.Tensor) -> int:
    return math.prod((result.shape[0], *weight.shape[1:], *result.shape[2:])) * weight.element_size()


def _columns_of_transposed_video(given: Arguments, unfolded: int, result: torch.Tensor) -> int:
    """Count one unfolded video, and the ones by which the bias is added."""
    ones = 0 if given["bias"] is None else math.prod(result.shape[2:]) * result.element_size()
    return unfolded // result.shape[0] + ones


def _native(given: Arguments, image: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> int:
    last = is_channels_last(image) or is_channels_last(weight)
    copies = _copy(image, last) + _copy(weight, last)
    groups, unfolded = given["groups"], _unfolded(given, image, weight, result)
    if given["transposed"] and image.dim() == _VIDEO:
        unfolded = _columns_of_transposed_video(given, unfolded, result)
    if groups == 1:
        return copies + unfolded
    # each group is a slice, and the results are concatenated at the end
    return copies + max(unfolded + bytes_of(image) // groups, bytes_of(result))


def _native_backward(given: Arguments, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor) -> int:
    last = is_channels_last(image) or is_channels_last(weight)
    copies = _copy(gradient, last) + _copy(image, last) + _copy(weight, last)
    groups, (wants_image, wants_weight, _) = given["groups"], given["output_mask"]
    unfolded = _unfolded(given, image, weight, gradient) if wants_weight or given["transposed"] else 0
    if given["transposed"]:
        unfolded //= image.shape[0]  # image after image
    elif wants_image and (image.dim() == _VIDEO or any(step > 1 for step in given["dilation"])):
        unfolded = _columns(weight, gradient)  # the image's gradient is unfolded, too
    if groups == 1:
        return copies + unfolded
    slices = (bytes_of(image) + bytes_of(gradient)) // groups
    bias = weight.shape[0] * weight.element_size()
    joined = (bytes_of(image) if wants_image else 0) + (bytes_of(weight) if wants_weight else 0) + bias
    return copies + max(unfolded + slices, joined)
