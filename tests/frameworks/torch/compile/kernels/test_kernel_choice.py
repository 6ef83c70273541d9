"""Plans of kernels in FX names: which run of a kernel a reader uses."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.frameworks.torch.compile.kernels.kernel_choice import KernelChoice
from tests.examples import examples


@examples(50)
@given(st.sets(st.integers(0, 20), min_size=1), st.integers(0, 20), st.booleans())
def test_a_reader_uses_its_own_run_or_else_the_latest_before_it(runs: set[int], reader: int, is_saved: bool) -> None:
    """A run that computes a value and uses it would otherwise keep the result of an earlier run alive until then."""
    choice = KernelChoice(
        buffer_of={"value": 0},
        recomputed_at={0: sorted(runs)},
        place_of={},
        turn=0,
        copies=(),
        saved={0} if is_saved else set(),
        stored_by_loops=(),
        forms={},
    )
    before = [place for place in runs if place <= reader]
    expected = max(before) if before else None if is_saved else min(runs)
    assert choice.maker("value", reader) == expected
