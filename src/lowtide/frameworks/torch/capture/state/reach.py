"""Find the places whose values a step's functions may read or write.

The search follows an attribute only if known code names it. New names start another round.
"""

import argparse
import functools
import io
import os
import random
import types
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from lowtide.frameworks.torch.capture.state.counters import counter_names
from lowtide.frameworks.torch.capture.state.names import (
    computes_names,
    global_names,
    is_followed_class,
    is_followed_file,
    is_followed_module,
    is_in_pytorch,
    names_in,
)
from lowtide.frameworks.torch.capture.state.observed_places import (
    ArrayContents,
    DefaultState,
    Environment,
    Flags,
    NumpyRandom,
    Position,
    PythonRandom,
    TensorContents,
    random_places,
)
from lowtide.frameworks.torch.capture.state.outside import ENVIRONMENT, source_of, sources_of
from lowtide.frameworks.torch.capture.state.places import (
    Cell,
    Globals,
    ListItems,
    Members,
    ModuleStructure,
    Named,
    Place,
    Table,
)

_VALUES = (int, float, complex, str, bytes, bool, type(None), Enum, torch.dtype, torch.device, torch.Size, range)
_POSITIONED = (types.GeneratorType, io.IOBase)
_ITERATORS = (
    "itertools",
    "list_iterator",
    "tuple_iterator",
    "dict_keyiterator",
    "dict_valueiterator",
    "range_iterator",
)
_UNREAD = frozenset(
    {
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
        "_non_persistent_buffers_set",
    }
)
_MODULE_TABLES = {"_parameters", "_buffers", "_modules"}
_MOST_ITEMS = 100_000
_MOST_ARRAY_BYTES = 1 << 16
_CALLED = {"__call__", "__getattr__", "__setattr__"}
_ANY_INSTANCE = {"__init__", "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__"}


@dataclass(frozen=True, slots=True)
class Reach:
    places: Sequence[Place]
    counters: Set[str]
    sources: Set[str]


def find_places(roots: Mapping[str, object], executed: Container[types.CodeType] | None = None) -> Reach:
    """Return the places that code reachable from labelled roots may use.

    If `executed` is given, other code is not followed.
    """
    closure = _PlaceSearch(frozenset(), False, executed)
    closure.run(roots)
    closure.follow_new_names()
    search = _PlaceSearch(frozenset(closure.names), closure.computes_names, executed)
    search.run(roots)
    environment = [Environment("os.environ", os.environ)] if ENVIRONMENT in search.sources else []
    places = [*search.places, *environment, DefaultState("", None), *random_places()]
    return Reach(places, counter_names(tuple(search.codes)), frozenset(search.sources - {ENVIRONMENT}))


class _PlaceSearch:
    def __init__(self, names: frozenset[str], follows_all: bool, executed: Container[types.CodeType] | None) -> None:
        self.names = set(names)
        self.computes_names = follows_all
        self._known = names
        self._executed = executed
        self._followed_names = None if follows_all else names
        self.places: list[Place] = []
        self.codes: list[types.CodeType] = []
        self.sources: set[str] = set()
        self._seen: dict[int, Any] = {}
        self._waiting: deque[tuple[str, Any]] = deque()
        self._globals: dict[int, Globals] = {}
        self._by_name: list[tuple[str, Any]] = []

    def run(self, roots: Mapping[str, object]) -> None:
        for label, root in roots.items():
            self.add(label, root)
        self._run()

    def follow_new_names(self) -> None:
        while new := frozenset(self.names) - self._known:
            known, self._known = self._known | new, new
            found, self._by_name = self._by_name, []
            self._followed_names = new
            for label, value in found:
                self._visit(label, value)
            self._known = self._followed_names = known
            self._run()

    def _run(self) -> None:
        while self._waiting:
            self._visit(*self._waiting.popleft())

    def add(self, label: str, value: Any) -> None:
        if not isinstance(value, _VALUES) and id(value) not in self._seen:
            self._seen[id(value)] = value
            self._waiting.append((label, value))

    def _visit(self, label: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            self._module(label, value)
        elif isinstance(value, torch.Tensor):
            self.places.append(Flags(label, value))
        elif isinstance(value, types.FunctionType):
            self._function(label, value)
        elif isinstance(value, type):
            self._class(label, value)
        elif isinstance(value, types.ModuleType):
            if is_followed_module(value.__name__):
                self._by_name.append((label, value))
                self._table(label, vars(value), self._known, attributes=True)
        elif isinstance(value, dict):
            self._table(label, value, None)
        elif isinstance(value, list | deque | tuple | set | frozenset):
            self._items(label, value)
        else:
            self._object(label, value)

    def _module(self, label: str, module: nn.Module) -> None:
        self._by_name.append((label, module))
        self.add(type(module).__name__, type(module))
        attributes = vars(module)
        self.places.append(Table(label, attributes, self._followed_names, attributes=True))
        for name, value in attributes.items():
            if name in _UNREAD:
                continue
            if name in _MODULE_TABLES:
                kind = Table if name == "_buffers" else ModuleStructure
                self.places.append(kind(label, value, attributes=True))
                for inner, held in value.items():
                    self.add(f"{label}[{inner}]" if inner.isdigit() else f"{label}.{inner}", held)
            elif name in self._known:
                if isinstance(value, torch.Tensor):
                    self._plain_tensor(f"{label}.{name}", value)
                self.add(f"{label}.{name}", value)

    def _plain_tensor(self, label: str, tensor: torch.Tensor) -> None:
        if tensor.numel() == 1 and not isinstance(tensor, nn.Parameter):
            self.places.append(TensorContents(label, tensor))

    def _function(self, label: str, function: types.FunctionType) -> None:
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
            place = Cell(f"{name} in {function.__name__}", cell, name)
            self.places.append(place)
            self._values(place, place.read())
        if not is_followed_file(function.__code__.co_filename):
            self.add(label, getattr(function, "__wrapped__", None))
            return
        if self._executed is not None and function.__code__ not in self._executed:
            return
        self.codes.append(function.__code__)
        if not is_in_pytorch(function.__code__.co_filename):
            self.sources |= sources_of(function)
        self.names |= names_in(function.__code__)
        self.computes_names = self.computes_names or computes_names(function.__code__)
        self.add(f"defaults of {function.__name__}", function.__defaults__)
        self.add(f"defaults of {function.__name__}", function.__kwdefaults__)
        if not is_in_pytorch(function.__code__.co_filename):
            self._table(function.__name__, vars(function), None, attributes=True)
            self.places.append(Named(function.__name__, function, ["__code__", "__defaults__", "__kwdefaults__"]))
        table = function.__globals__
        if id(table) not in self._globals:
            self._seen[id(table)] = table
            self._globals[id(table)] = place = Globals("", table, [])
            self.places.append(place)
        place = self._globals[id(table)]
        for name in global_names(function):
            if name not in place.keys:
                place.keys.append(name)
                self._named_value(name, table[name])

    def _class(self, label: str, kind: type) -> None:
        for each in kind.__mro__:
            if not is_followed_class(each) or (each is not kind and id(each) in self._seen):
                continue
            self._seen[id(each)] = each
            self._by_name.append((label, each))
            keys = [key for key in vars(each) if self._uses_attribute(key, each)]
            self.places.append(Named(each.__name__, each, keys))
            for key in keys:
                for value in _functions_of(vars(each)[key]):
                    self._named_value(f"{each.__name__}.{key}", value)

    def _uses_attribute(self, key: str, kind: type) -> bool:
        if key in self._known:
            return True
        is_special = key.startswith("__") and key.endswith("__") and key not in _ANY_INSTANCE
        return is_special and (key in _CALLED or is_followed_module(kind.__module__))

    def _object(self, label: str, value: Any) -> None:
        if (source := source_of(value)) is not None:
            self.sources.add(source)
        kind = cast("type[Any]", type(value))
        if isinstance(value, types.MethodType):
            self.add(label, value.__func__)
            self.add(label.rpartition(".")[0] or label, value.__self__)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.add(label, part)
        elif isinstance(value, random.Random):
            self.places.append(PythonRandom(label, value))
        elif isinstance(value, np.random.Generator | np.random.RandomState):
            self.places.append(NumpyRandom(label, value))
        elif isinstance(value, np.ndarray):
            array = cast("Any", value)
            if array.nbytes <= _MOST_ARRAY_BYTES and not array.dtype.hasobject:
                self.places.append(ArrayContents(label, array))
        elif isinstance(value, _POSITIONED) or kind.__module__ == "itertools" or kind.__name__ in _ITERATORS:
            self.places.append(Position(label, value))
        elif isinstance(value, property | staticmethod | classmethod | functools.cached_property):
            for part in _functions_of(value):
                self.add(label, part)
        elif is_followed_class(kind):
            self.add(kind.__name__, kind)
            self._attributes(label, value)
        elif isinstance(value, types.SimpleNamespace | argparse.Namespace):
            self._attributes(label, value)

    def _attributes(self, label: str, value: Any) -> None:
        self._by_name.append((label, value))
        if hasattr(value, "__dict__"):
            self._table(label, vars(value), self._followed_names, attributes=True)
        slots = [slot for kind in type(value).__mro__ for slot in _slots_of(kind) if slot in self._known]
        if slots:
            self.places.append(Named(label, value, slots))
            for slot in slots:
                self._named_value(f"{label}.{slot}", getattr(value, slot, None))

    def _table(self, label: str, table: Any, names: frozenset[str] | None, *, attributes: bool = False) -> None:
        if len(table) > _MOST_ITEMS:
            return
        place = Table(label, table, names, attributes=attributes)
        self.places.append(place)
        self._seen[id(table)] = table
        values = place.read()
        for position in range(len(values) // 2, len(values)):
            key = values[position - len(values) // 2]
            if not attributes or key in self._known:
                self._named_value(place.name(values, position), values[position])

    def _items(self, label: str, value: Any) -> None:
        if len(value) > _MOST_ITEMS:
            return
        if isinstance(value, list | deque):
            self.places.append(ListItems(label, value))
        elif isinstance(value, set):
            self.places.append(Members(label, value))
        for position, item in enumerate(cast("Iterable[Any]", value)):
            self._named_value(f"{label}[{position}]", item)

    def _values(self, place: Place, values: list[Any]) -> None:
        for position, value in enumerate(values):
            self._named_value(place.name(values, position), value)

    def _named_value(self, label: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and id(value) not in self._seen:
            self._plain_tensor(label, value)
        self.add(label, value)


def _functions_of(value: Any) -> Iterator[Any]:
    if isinstance(value, property):
        yield from (each for each in (value.fget, value.fset) if each is not None)
    elif isinstance(value, staticmethod | classmethod):
        yield cast("Any", value).__func__
    elif isinstance(value, functools.cached_property):
        yield value.func
    else:
        yield value


def _slots_of(kind: type) -> Sequence[str]:
    slots: Any = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
