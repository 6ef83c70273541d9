"""The modeled scratch of half-precision reductions is the measured scratch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.frameworks.torch.reading.measured_scratch import measured_scratch, modeled_scratch

aten = torch.ops.aten
LAYOUTS = {
    "contiguous": lambda: torch.rand(6, 10, 20),
    "a slice of columns": lambda: torch.rand(6, 10, 40)[:, :, :20],
    "a slice of rows": lambda: torch.rand(6, 20, 20)[:, :10],
    "transposed": lambda: torch.rand(10, 6, 20).transpose(0, 1),
    "transposed rows": lambda: torch.rand(6, 20, 10).transpose(1, 2),
    "repeated rows": lambda: torch.rand(6, 1, 20).expand(6, 10, 20),
    "a repeated row": lambda: torch.rand(1, 1, 20).expand(6, 10, 20),
    "a repeated number": lambda: torch.rand(1, 1, 1).expand(6, 10, 20),
}


def in_half(layout: str, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of a dtype with a layout."""
    single = LAYOUTS[layout]()
    half = torch.empty(1 + sum((size - 1) * step for size, step in zip(single.shape, single.stride(), strict=True)))
    return half.zero_().to(dtype).as_strided(single.shape, single.stride())


@examples(60)
@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from([torch.bfloat16, torch.float16]),
    st.lists(st.integers(0, 2), unique=True).map(sorted),
)
def test_a_sum_over_several_strides_is_computed_in_single_precision(
    layout: str, dtype: torch.dtype, dims: list[int]
) -> None:
    source = in_half(layout, dtype)
    calls = [(aten.sum.dim_IntList, source, dims), (aten.mean.dim, source, dims)]
    for function, *arguments in [*calls, *([] if dims else [(aten.sum.default, source)])]:
        measured = measured_scratch(lambda function=function, arguments=arguments: function(*arguments))
        assert measured == modeled_scratch(function, *arguments)


@pytest.mark.parametrize("dims", [[0], [-1], []])
def test_a_single_number_is_summed_without_scratch(dims: list[int]) -> None:
    """A tensor without dimensions may be summed over its first or last one."""
    assert modeled_scratch(aten.sum.dim_IntList, torch.rand(()), dims) == 0


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("gradient", ["contiguous", "channels last", "repeated"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_images_are_cast_for_a_batch_norm_with_a_gradient_of_other_strides(
    dtype: torch.dtype, gradient: str, last: bool
) -> None:
    forms = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
    image = torch.rand(8, 5, 6, 6, dtype=dtype)
    given = torch.rand(1, dtype=dtype).expand(image.shape)
    given = given if gradient == "repeated" else given.contiguous(memory_format=forms[gradient])
    image = image.contiguous(memory_format=torch.channels_last) if last else image
    channel = torch.rand(5)
    arguments = (given, image, channel, channel, channel, channel, channel, True, 1e-5, [True, True, True])
    measured = measured_scratch(lambda: aten.native_batch_norm_backward.default(*arguments))
    modeled = modeled_scratch(aten.native_batch_norm_backward.default, *arguments)
    assert measured <= modeled <= measured + 3 * channel.nbytes
