"""Inductor's kernels for the CPU without their code, which takes most of its compile time: peaks are the same."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch._inductor.async_compile import AsyncCompile


@contextmanager
def kernels_left_empty() -> Iterator[None]:
    """Let kernels of Inductor's own fill with zeros what they write, instead of compiling them.

    What is allocated and freed around them, and PyTorch's own kernels between them, are as ever. Zeros are places that
    are there, where something is looked up by what a kernel wrote.
    """
    with patch.object(AsyncCompile, "cpp_pybinding", _empty_kernel):
        yield


def _empty_kernel(_compiler: AsyncCompile, types: Sequence[str], _code: str) -> Callable[..., None]:
    written = [place for place, kind in enumerate(types) if kind.endswith("*") and not kind.startswith("const")]

    def fill(*given: Any) -> None:
        for place in written:
            given[place].detach().zero_()

    return fill
