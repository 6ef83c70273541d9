"""The graph of Inductor's kernels counts storage as kernels take it."""

from lowtide.frameworks.torch.compile.fusion.kernel_graph import skip_unstored


def test_parts_of_a_kernel_that_write_one_over_the_other_take_over_what_the_first_was_written_over() -> None:
    """A gradient is written over a saved value by way of a factor that nothing else reads and that has no storage."""
    pairs = [("saved", "factor"), ("factor", "product"), ("product", "gradient")]
    assert skip_unstored(pairs, {"gradient"})[-1] == ("saved", "gradient")
    assert skip_unstored(pairs, {"product", "gradient"})[-1] == ("product", "gradient")
