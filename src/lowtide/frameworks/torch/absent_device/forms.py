"""Send models and batches to another process without tensor contents."""

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lowtide.core.errors import UsageError, one_line
from lowtide.core.named_callable import import_file
from lowtide.frameworks.training_steps import STEP_AND_BATCH

_ADVICE = (
    "save the definitions in train.py, in a notebook with %%writefile train.py, and give the name "
    '"train.py:step" in place of the program, as in lowtide.fits("train.py:step", device=...); '
    f"step() returns {STEP_AND_BATCH}"
)
_MAIN = "__lowtide_main__"


def pickled_forms(program: Any) -> tuple[bytes, str | None]:
    """Return a program without tensor contents, and the path of the main script. Raises UsageError."""
    written = io.BytesIO()
    try:
        _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(program)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"the program cannot be sent to another process: {one_line(error)}; {_ADVICE}") from error
    main = getattr(sys.modules["__main__"], "__file__", None)
    return written.getvalue(), None if main is None else str(Path(main).resolve())


def unpickled_forms(content: bytes, main: str | None) -> Any:
    """Return the program with new tensors on the CUDA device, fake in a fake mode. Raises UsageError."""
    return _Unpickler(io.BytesIO(content), main).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        form = tuple(value.shape), tuple(value.stride()), value.dtype, value.requires_grad
        return _tensor_of, (*form, isinstance(value, nn.Parameter))


def _tensor_of(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, is_parameter: bool
) -> torch.Tensor:
    made = torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
    return nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: io.BytesIO, main: str | None) -> None:
        super().__init__(content)
        self._main = main

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name != "__main__":
            return super().find_class(module_name, global_name)
        if self._main is None or not Path(self._main).is_file():
            raise UsageError(f"{global_name!r} is defined where another process cannot find it; {_ADVICE}")
        found: Any = import_file(Path(self._main), _MAIN)
        for part in global_name.split("."):
            found = getattr(found, part)
        return found
