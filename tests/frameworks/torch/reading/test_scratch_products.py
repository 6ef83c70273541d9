"""The modeled scratch of half-precision products, which pack their factors, is at least the measured scratch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lowtide.frameworks.torch.internals.runtime import multiplies_tiles
from tests.examples import examples
from tests.frameworks.torch.reading.measured_scratch import SCALARS, measured_scratch, modeled_scratch

aten = torch.ops.aten
MEBI = 2**20
LENGTHS = st.sampled_from([1, 7, 64, 300, 768, 1024, 3072])


def matrix(rows: int, columns: int, dtype: torch.dtype, turned: bool) -> torch.Tensor:
    """Return a matrix with contiguous rows or, if `turned`, contiguous columns."""
    return torch.rand(columns, rows, dtype=dtype).t() if turned else torch.rand(rows, columns, dtype=dtype)


@examples(40)
@given(LENGTHS, LENGTHS, LENGTHS, st.sampled_from([torch.bfloat16, torch.float16]), st.booleans(), st.booleans())
def test_scratch_of_products(
    rows: int, inner: int, columns: int, dtype: torch.dtype, left_turned: bool, right_turned: bool
) -> None:
    left, right = matrix(rows, inner, dtype, left_turned), matrix(inner, columns, dtype, right_turned)
    bias = torch.rand(columns, dtype=dtype)
    for call in ((aten.mm.default, left, right), (aten.addmm.default, bias, left, right)):
        assert measured_scratch(lambda call=call: call[0](*call[1:])) <= modeled_scratch(*call) + SCALARS


@pytest.mark.skipif(not multiplies_tiles(), reason="the processor has no AMX tiles")
def test_scratch_of_long_sums_includes_partial_sums() -> None:
    call = (aten.mm.default, torch.rand(2048, 3072).bfloat16(), torch.rand(3072, 768).bfloat16())
    measured, modeled = measured_scratch(lambda: call[0](*call[1:])), modeled_scratch(*call)
    assert 7 * MEBI < measured <= modeled < 1.05 * measured
