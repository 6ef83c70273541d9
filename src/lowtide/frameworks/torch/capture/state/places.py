"""Places that hold Python values."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import MutableSequence, Set
from dataclasses import dataclass
from typing import Any


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()


@dataclass(slots=True, eq=False)
class Place(ABC):
    """Values that Python code can replace."""

    label: str
    owner: Any

    is_guarded = True
    """Whether a change from outside may change the program."""
    is_restorable = True

    @abstractmethod
    def read(self) -> list[Any]:
        """Return keys and values."""

    def write(self, values: list[Any]) -> None:
        """Put back values that `read` returned."""
        raise NotImplementedError

    def name(self, values: list[Any], position: int) -> str:
        return self.label

    def variables(self, values: list[Any]) -> list[Any]:
        """Return the variables that hold these values, None for others."""
        return [None] * len(values)


class Table(Place):
    """All or some entries of a dictionary."""

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


class ModuleStructure(Table):
    __slots__ = ()


class Named(Place):
    """Attributes of a class or of an object with slots."""

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


class ListItems(Place):
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
    __slots__ = ()

    def read(self) -> list[Any]:
        return list(self.owner)

    def write(self, values: list[Any]) -> None:
        owner: set[Any] = self.owner
        owner.clear()
        owner.update(values)


class Cell(Place):
    __slots__ = ("variable",)

    def __init__(self, label: str, owner: Any, variable: str):
        super().__init__(label, owner)
        self.variable = variable

    def read(self) -> list[Any]:
        try:
            return [self.owner.cell_contents]
        except ValueError:
            return [ABSENT]

    def write(self, values: list[Any]) -> None:
        if values[0] is ABSENT:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = values[0]

    def variables(self, values: list[Any]) -> list[Any]:
        return [self.variable]


class WithoutCounters(Place):
    """A place without the values of its counters."""

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
