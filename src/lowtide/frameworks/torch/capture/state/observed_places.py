"""Places whose values are observed, such as flags of tensors and random states."""

import operator
import pickle
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from lowtide.frameworks.torch.capture.state.places import ABSENT, Place, Table
from lowtide.frameworks.torch.internals.interpreter import bits_of, global_generators
from lowtide.frameworks.torch.internals.optimizers import has_gradient_hooks
from lowtide.frameworks.torch.internals.tensors import version_of


class Flags(Place):
    """Whether a tensor requires grad and has hooks."""

    __slots__ = ()
    is_restorable = False

    def read(self) -> list[Any]:
        return [self.owner.requires_grad, has_gradient_hooks(self.owner)]

    def name(self, values: list[Any], position: int) -> str:
        return f"{self.label}.requires_grad" if position == 0 else f"hooks of {self.label}"


class TensorContents(Place):
    """The version of a small tensor that is neither parameter nor buffer: tracing reads its value."""

    __slots__ = ()
    is_restorable = False

    def read(self) -> list[Any]:
        return [(version_of(self.owner),)]


class Environment(Table):
    """Environment variables, never cleared at once."""

    __slots__ = ()

    def write(self, values: list[Any]) -> None:
        half = len(values) // 2
        wanted = dict(zip(values[:half], values[half:], strict=True))
        for name in set(self.owner).difference(wanted):
            del self.owner[name]
        self.owner.update(wanted)


class ArrayContents(Place):
    __slots__ = ()

    def read(self) -> list[Any]:
        array: np.ndarray[Any, Any] = self.owner
        return [array.dtype.str, array.shape, array.tobytes()]

    def write(self, values: list[Any]) -> None:
        dtype, shape, content = values
        self.owner[...] = np.frombuffer(content, dtype).reshape(shape)


class PythonRandom(Place):
    __slots__ = ()
    is_guarded = False

    def read(self) -> list[Any]:
        return [self.owner.getstate()]

    def write(self, values: list[Any]) -> None:
        self.owner.setstate(values[0])


class NumpyRandom(Place):
    __slots__ = ()
    is_guarded = False

    def read(self) -> list[Any]:
        return [pickle.dumps(bits_of(self.owner).state)]

    def write(self, values: list[Any]) -> None:
        bits_of(self.owner).state = pickle.loads(values[0])


class Position(Place):
    """The position of an iterator, generator or file, which cannot be restored."""

    __slots__ = ()
    is_guarded = False
    is_restorable = False

    def read(self) -> list[Any]:
        owner = self.owner
        if isinstance(owner, types.GeneratorType):
            frame: Any = owner.gi_frame
            return [] if frame is None else [frame.f_lasti, *frame.f_locals.values()]
        if hasattr(owner, "tell"):
            return [ABSENT if owner.closed or not owner.seekable() else owner.tell()]
        return [repr(owner), operator.length_hint(owner, -1)]


class DefaultState(Place):
    """PyTorch's default dtype and automatic casts."""

    __slots__ = ()
    is_restorable = False

    def read(self) -> list[Any]:
        kinds = ("cpu", "cuda")
        casts = [torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None for kind in kinds]
        return [torch.get_default_dtype(), *casts]

    def name(self, values: list[Any], position: int) -> str:
        return "the default dtype" if position == 0 else "autocast"


def random_places() -> Iterator[Place]:
    python, numpy = global_generators()
    yield PythonRandom("numbers drawn by random", python)
    yield NumpyRandom("numbers drawn by numpy.random", numpy)
