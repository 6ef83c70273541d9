"""The modeled scratch of CPU convolutions is at least the measured scratch, and little more."""

from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lowtide.frameworks.torch.internals.runtime import onednn_computes
from lowtide.frameworks.torch.reading import workspaces
from tests.examples import examples
from tests.frameworks.torch.reading.measured_scratch import SCALARS, measured_scratch, modeled_scratch

aten = torch.ops.aten
DTYPES = [*[torch.float32] * 4, torch.float64, *[torch.bfloat16] * 2 * onednn_computes(torch.bfloat16)]
SHARE, SHARE_DEPTHWISE, CONSTANT = 0.5, 1.5, 800_000
"""Maximum excess of the model: a share of the bytes read and written (more for depthwise convolutions), and a constant
for an image with a border and accumulators."""
FEW_BUFFERS = 4096
BLOCKS_DEPTHWISE = 16 * 16 * 4
"""Further excess per weight element of depthwise convolutions, in blocks of channels."""


@dataclass(frozen=True)
class Case:
    """A convolution of random numbers."""

    images: int
    pixels: int
    sources: int
    results: int
    kernel: int
    stride: int
    padding: int
    groups: int
    channels_last: bool
    gradient_last: bool
    bias: bool
    dtype: torch.dtype
    image_gradient: bool

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of aten.convolution."""
        image = torch.randn(self.images, self.sources, self.pixels, self.pixels, dtype=self.dtype)
        if self.channels_last:
            image = image.contiguous(memory_format=torch.channels_last)
        weight = torch.randn(self.results, self.sources // self.groups, self.kernel, self.kernel, dtype=self.dtype)
        bias = torch.randn(self.results, dtype=self.dtype) if self.bias else None
        return (image, weight, bias, [self.stride] * 2, [self.padding] * 2, [1, 1], False, [0, 0], self.groups)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw plain, strided, depthwise and patch convolutions with small and large batches."""
    shape = draw(st.sampled_from(["plain", "plain", "plain", "depthwise", "patches"]))
    channels = st.sampled_from([8, 16, 24, 32, 48, 64])
    if shape == "patches":
        kernel = stride = draw(st.sampled_from([4, 8, 14, 16]))
        sources, results, padding, pixels = 3, draw(channels), 0, draw(st.sampled_from([48, 64, 96]))
    else:
        kernel, stride = draw(st.sampled_from([1, 3, 5, 7])), draw(st.sampled_from([1, 1, 2]))
        sources, results = draw(st.sampled_from([3, 16, 32, 48, 64])), draw(channels)
        padding, pixels = kernel // 2, draw(st.sampled_from([8, 12, 16, 24, 33]))
    if kernel == 1 and stride > 1:
        sources = max(sources, 16)  # PyTorch 2.13 writes out of bounds on fewer channels in channels-last format
    if shape == "depthwise":
        kernel, padding, sources = max(3, kernel), max(3, kernel) // 2, results
    last = draw(st.booleans())
    return Case(
        images=draw(st.sampled_from([1, 2, 4, 8, 16])),
        pixels=pixels,
        sources=sources,
        results=results,
        kernel=kernel,
        stride=stride,
        padding=padding,
        groups=sources if shape == "depthwise" else 1,
        channels_last=last,
        gradient_last=draw(st.sampled_from([last, last, False, True])),
        bias=draw(st.booleans()),
        dtype=draw(st.sampled_from(DTYPES)),
        image_gradient=draw(st.sampled_from([True, True, False])),
    )


def _check(case: Case, measured: int, modeled: int, *operands: torch.Tensor) -> None:
    touched = sum(tensor.nbytes for tensor in operands)
    share, blocks = (
        (SHARE, 0) if case.groups == 1 else (SHARE_DEPTHWISE, BLOCKS_DEPTHWISE * case.results * case.kernel**2)
    )
    assert measured <= modeled + SCALARS
    assert modeled <= measured + share * touched + blocks + CONSTANT


@examples(40)
@given(cases())
def test_scratch_of_a_convolution(case: Case) -> None:
    arguments = case.arguments()
    measured = measured_scratch(lambda: aten.convolution.default(*arguments))
    result = aten.convolution.default(*arguments)
    _check(case, measured, modeled_scratch(aten.convolution.default, *arguments), *arguments[:2], result)


@examples(40)
@given(cases())
def test_scratch_of_a_convolutions_gradients(case: Case) -> None:
    image, weight, _, *settings_of = case.arguments()
    gradient = torch.randn_like(aten.convolution.default(image, weight, None, *settings_of))
    form = torch.channels_last if case.gradient_last else torch.contiguous_format
    gradient = gradient.contiguous(memory_format=form)
    wanted = [case.image_gradient, True, case.bias]
    arguments = (gradient, image, weight, [case.results], *settings_of, wanted)
    measured = measured_scratch(lambda: aten.convolution_backward.default(*arguments))
    modeled = modeled_scratch(aten.convolution_backward.default, *arguments)
    _check(case, measured, modeled, gradient, image, weight)


@pytest.mark.skipif(not onednn_computes(torch.bfloat16), reason="oneDNN does not compute bfloat16 on this processor")
@examples(40)
@given(cases())
def test_rules_for_16_bit_convolutions_that_are_too_large_to_measure_bound_them_within_5_percent(case: Case) -> None:
    image, weight, bias, *settings_of = replace(case, dtype=torch.bfloat16).arguments()
    forward = (image, weight, bias, *settings_of)
    gradient = torch.randn_like(aten.convolution.default(*forward))
    wanted = [case.image_gradient, True, case.bias]
    backward = (gradient, image, weight, [case.results], *settings_of, wanted)
    with patch.object(workspaces, "_MOST_MULTIPLICATIONS", 0):
        for function, arguments in ((aten.convolution.default, forward), (aten.convolution_backward.default, backward)):
            measured = measured_scratch(lambda function=function, arguments=arguments: function(*arguments))
            assert measured <= 1.05 * modeled_scratch(function, *arguments) + FEW_BUFFERS


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_without_onednn_half_precision_images_are_unfolded(dtype: torch.dtype, groups: int) -> None:
    if onednn_computes(dtype):
        pytest.skip(f"oneDNN computes {dtype} on this processor")
    image, weight = torch.rand(2, 16, 32, 32, dtype=dtype), torch.rand(16, 16 // groups, 3, 3, dtype=dtype)
    settings_of = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    backward = (torch.rand_like(image), image, weight, None, *settings_of, [True, True, False])
    for function, arguments in (
        (aten.convolution.default, (image, weight, None, *settings_of)),
        (aten.convolution_backward.default, backward),
    ):
        measured = measured_scratch(lambda function=function, arguments=arguments: function(*arguments))
        assert measured == pytest.approx(modeled_scratch(function, *arguments), abs=SCALARS)


def test_a_kernel_with_more_rows_than_the_image_is_unfolded_for_its_gradient() -> None:
    """This happens in residual networks on small images. Processors copy weights different numbers of times."""
    for last in (True, False):
        form = torch.channels_last if last else torch.contiguous_format
        image, weight = (torch.randn(64, 64, side, side).contiguous(memory_format=form) for side in (2, 3))
        settings_of = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        arguments = (torch.randn_like(image), image, weight, [64], *settings_of, [True, True, False])
        measured = measured_scratch(lambda arguments=arguments: aten.convolution_backward.default(*arguments))
        assert weight.nbytes <= measured <= modeled_scratch(aten.convolution_backward.default, *arguments) + SCALARS


VIDEOS = {
    "short": ((1, 16, 3, 12, 40), {}),
    "short and wide": ((1, 16, 4, 16, 64), {}),
    "one position": ((1, 16, 4, 16, 64), {"kernel": 1}),
    "strided": ((1, 16, 4, 16, 64), {"stride": 2}),
    "dilated": ((1, 8, 5, 16, 16), {"dilation": 2}),
    "transposed": ((1, 8, 4, 8, 16), {"kernel": 2, "stride": 2, "transposed": True}),
    "two in double precision": ((2, 8, 4, 8, 8), {"dtype": torch.float64}),
}
"""Videos for PyTorch's own kernels, which unfold them."""


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", VIDEOS)
def test_videos_are_unfolded(name: str, bias: bool) -> None:
    shape, chosen = VIDEOS[name]
    kernel, dtype, transposed = chosen.get("kernel", 3), chosen.get("dtype"), chosen.get("transposed", False)
    video, weight = torch.randn(shape, dtype=dtype), torch.randn(shape[1], 8, *[kernel] * 3, dtype=dtype)
    weight = weight if transposed else weight.transpose(0, 1).contiguous()
    stride, dilation = chosen.get("stride", 1), chosen.get("dilation", 1)
    settings_of = ([stride] * 3, [0] * 3, [dilation] * 3, transposed, [0] * 3, 1)
    forward = (video, weight, torch.randn(8, dtype=dtype) if bias else None, *settings_of)
    gradient = torch.randn_like(aten.convolution.default(*forward))
    backward = (gradient, video, weight, [8], *settings_of)
    wanted = [True, True, bias], [True, False, False], [False, True, False]
    calls = [(aten.convolution_backward.default, (*backward, mask)) for mask in wanted]
    for function, arguments in [(aten.convolution.default, forward), *calls]:
        measured = measured_scratch(lambda function=function, arguments=arguments: function(*arguments))
        assert measured == pytest.approx(modeled_scratch(function, *arguments), abs=weight.nbytes + SCALARS)
