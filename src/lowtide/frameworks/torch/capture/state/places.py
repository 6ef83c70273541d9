"""Places that hold Python values: attributes, containers, cells, flags of tensors, and random states."""

import operator
import pickle
import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, MutableSequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lowtide.frameworks.torch.internals.interpreter import bits_of, global_generators
from lowtide.frameworks.torch.internals.optimizers import has_gradient_hooks
from lowtide.frameworks.torch.internals.tensors import version_of


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()


@dataclass(slots=True, eq=False)
class Place(ABC):
    """Some values that Python code can replace."""

    label: str
    owner: Any

    is_guarded = True
    """Whether a change from outside may change the program. Positions of random states may not."""
    is_restorable = True

    @abstractmethod
    def read(self) -> list[Any]:
        """Return keys and values."""

    def write(self, values: list[Any]) -> None:
        """Put back values that `read` returned."""
        raise NotImplementedError

    def name(self, values: list[Any], position: int) -> str:
        """Return the label of one of these values."""
        return self.label

    def variables(self, values: list[Any]) -> list[Any]:
        """Return the names of variables that hold these values, None for other values."""
        return [None] * len(values)


class Table(Place):
    """All entries of a dictionary, or those of some names."""

    __slots__ = ("is_attributes", "names")

    def __init__(self, label: str, owner: Any, names: frozenset[str] | None = None, *, attributes: bool = False):
        super().__init__(label, owner)
        self.names, self.is_attributes = names, attributes

    def read(self) -> list[Any]:
        owner: dict[Any, Any] = self.owner
        if self.names is None:
            return [*owner, *owner.values()]
        keys = [key for key in owner if key in self.names]
        return [*keys, *map(owner.__getitem__, keys)]

    def write(self, values: list[Any]) -> None:
        owner: dict[Any, Any] = self.owner
        half = len(values) // 2
        wanted = dict(zip(values[:half], values[half:], strict=True))
        kept = owner if self.names is None else [key for key in owner if key in self.names]
        if self.names is None and list(owner) != values[:half]:
            owner.clear()
        else:
            for key in [key for key in kept if key not in wanted]:
                del owner[key]
        owner.update(wanted)

    def name(self, values: list[Any], position: int) -> str:
        key = values[position % (len(values) // 2)]
        return f"{self.label}.{key}" if self.is_attributes else f"{self.label}[{key!r}]"

    def variables(self, values: list[Any]) -> list[Any]:
        half = len(values) // 2
        return [*[None] * half, *(values[:half] if self.is_attributes else [None] * half)]


class Structure(Table):
    """The parameters or inner modules of a module."""

    __slots__ = ()


class Named(Place):
    """Some attributes of an object: a class, or an object with slots."""

    __slots__ = ("keys",)

    def __init__(self, label: str, owner: Any, keys: list[str]):
        super().__init__(label, owner)
        self.keys = keys

    def read(self) -> list[Any]:
        table: Any = vars(self.owner) if isinstance(self.owner, type) else None
        if table is not None:
            return [table.get(key, ABSENT) for key in self.keys]
        return [getattr(self.owner, key, ABSENT) for key in self.keys]

    def write(self, values: list[Any]) -> None:
        for key, before, now in zip(self.keys, values, self.read(), strict=True):
            if before is now:
                continue
            if before is ABSENT:
                delattr(self.owner, key)
            else:
                setattr(self.owner, key, before)

    def name(self, values: list[Any], position: int) -> str:
        return f"{self.label}.{self.keys[position]}"

    def variables(self, values: list[Any]) -> list[Any]:
        return list(self.keys)


class Globals(Place):
    """The globals that some functions name."""

    __slots__ = ("keys",)

    def __init__(self, label: str, owner: Any, keys: list[str]):
        super().__init__(label, owner)
        self.keys = keys

    def read(self) -> list[Any]:
        table: dict[str, Any] = self.owner
        return [table.get(key, ABSENT) for key in self.keys]

    def write(self, values: list[Any]) -> None:
        table: dict[str, Any] = self.owner
        table.update((key, value) for key, value in zip(self.keys, values, strict=True) if value is not ABSENT)
        for key, value in zip(self.keys, values, strict=True):
            if value is ABSENT:
                table.pop(key, None)

    def name(self, values: list[Any], position: int) -> str:
        return f"{self.label}{self.keys[position]}"

    def variables(self, values: list[Any]) -> list[Any]:
        return list(self.keys)


class Items(Place):
    """The items of a list or deque."""

    __slots__ = ()

    def read(self) -> list[Any]:
        return list(self.owner)

    def write(self, values: list[Any]) -> None:
        owner: MutableSequence[Any] = self.owner
        if isinstance(owner, deque):
            owner.clear()
            owner.extend(values)
        else:
            owner[:] = values

    def name(self, values: list[Any], position: int) -> str:
        return f"{self.label}[{position}]"


class Members(Place):
    """The members of a set."""

    __slots__ = ()

    def read(self) -> list[Any]:
        return list(self.owner)

    def write(self, values: list[Any]) -> None:
        owner: set[Any] = self.owner
        owner.clear()
        owner.update(values)


class Cell(Place):
    """A variable of an outer function."""

    __slots__ = ("variable",)

    def __init__(self, label: str, owner: Any, variable: str):
        super().__init__(label, owner)
        self.variable = variable

    def read(self) -> list[Any]:
        cell: types.CellType = self.owner
        try:
            return [cell.cell_contents]
        except ValueError:
            return [ABSENT]

    def write(self, values: list[Any]) -> None:
        if values[0] is ABSENT:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = values[0]

    def variables(self, values: list[Any]) -> list[Any]:
        return [self.variable]


class Flags(Place):
    """The flag of a tensor that asks for its gradient, and whether it has hooks."""

    __slots__ = ()
    is_restorable = False

    def read(self) -> list[Any]:
        return [self.owner.requires_grad, has_gradient_hooks(self.owner)]

    def name(self, values: list[Any], position: int) -> str:
        return f"{self.label}.requires_grad" if position == 0 else f"hooks of {self.label}"


class TensorContents(Place):
    """The version of a small tensor that is neither parameter nor buffer: traced code reads its number."""

    __slots__ = ()
    is_restorable = False

    def read(self) -> list[Any]:
        return [(version_of(self.owner),)]


class ArrayContents(Place):
    """The bytes of a small NumPy array."""

    __slots__ = ()

    def read(self) -> list[Any]:
        array: np.ndarray[Any, Any] = self.owner
        return [array.dtype.str, array.shape, array.tobytes()]

    def write(self, values: list[Any]) -> None:
        dtype, shape, content = values
        self.owner[...] = np.frombuffer(content, dtype).reshape(shape)


class PythonRandom(Place):
    """The position of a generator of Python's `random`."""

    __slots__ = ()
    is_guarded = False

    def read(self) -> list[Any]:
        return [self.owner.getstate()]

    def write(self, values: list[Any]) -> None:
        self.owner.setstate(values[0])


class NumpyRandom(Place):
    """The position of a generator of NumPy."""

    __slots__ = ()
    is_guarded = False

    def read(self) -> list[Any]:
        return [pickle.dumps(bits_of(self.owner).state)]

    def write(self, values: list[Any]) -> None:
        bits_of(self.owner).state = pickle.loads(values[0])


class Position(Place):
    """The position of an iterator, generator or open file, which cannot be put back."""

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


class WithoutCounters(Place):
    """A place in which the values of counters do not matter."""

    __slots__ = ("counters",)

    def __init__(self, place: Place, counters: Set[str]):
        super().__init__(place.label, place)
        self.counters = counters

    def read(self) -> list[Any]:
        place: Place = self.owner
        values = place.read()
        return [
            int if name in self.counters and type(value) is int else value
            for name, value in zip(place.variables(values), values, strict=True)
        ]

    def name(self, values: list[Any], position: int) -> str:
        return self.owner.name(values, position)


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
    """Yield the global generators of Python and NumPy."""
    python, numpy = global_generators()
    yield PythonRandom("numbers drawn by random", python)
    yield NumpyRandom("numbers drawn by numpy.random", numpy)
