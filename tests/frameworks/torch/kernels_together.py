"""Inductor's kernels for the CPU, compiled together when one of them first runs: reading headers takes most of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CDLL, c_float, c_int64, c_void_p
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CppPythonBindingsCodeCache

_NUMBERS = {"const float": c_float, "const int64_t": c_int64}
"""What kernels are given beside tensors: scalars, and sizes."""
_HEAD = 'extern "C"  void  kernel('


class _Library(CppPythonBindingsCodeCache):
    """What is compiled as a kernel's code is, but loaded as it is, without a Python function."""

    cache: ClassVar[dict[str, Callable[[], Any]]] = {}

    @classmethod
    def _load_library_inner(cls, path: str, key: str) -> CDLL:
        return CDLL(path)


class _Kernel:
    """A kernel, called with tensors and sizes."""

    def __init__(self, waiting: list["_Kernel"], types: Sequence[str], code: str) -> None:
        self._waiting = waiting
        self._types = [c_void_p if kind.endswith("*") else _NUMBERS[kind] for kind in types]
        self._code = code
        self._run: Callable[..., None] | None = None
        waiting.append(self)

    def __call__(self, *given: Any) -> None:
        if self._run is None:
            self._compile_all()
        assert self._run is not None
        self._run(*(each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given))

    def _compile_all(self) -> None:
        waiting = [*self._waiting]
        self._waiting.clear()
        renamed: list[str] = []
        for place, kernel in enumerate(waiting):
            assert kernel._code.count(_HEAD) == 1, kernel._code
            renamed.append(kernel._code.replace(_HEAD, _HEAD.replace("kernel", f"kernel_{place}")))
        library: Any = _Library.load("\n".join(renamed), device_type="cpu")
        for place, kernel in enumerate(waiting):
            run = library[f"kernel_{place}"]
            run.argtypes, run.restype = kernel._types, None
            kernel._run = run


@contextmanager
def kernels_compiled_together() -> Iterator[None]:
    """Let all kernels whose code was written by then be compiled as one library; equal ones are compiled once."""
    waiting: list[_Kernel] = []
    known: dict[str, _Kernel] = {}

    def kernel(_compiler: AsyncCompile, types: Sequence[str], code: str) -> _Kernel:
        if code not in known:
            known[code] = _Kernel(waiting, types, code)
        return known[code]

    with patch.object(AsyncCompile, "cpp_pybinding", kernel):
        yield
