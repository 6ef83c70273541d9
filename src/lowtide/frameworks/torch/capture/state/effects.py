"""Effects of a rehearsal on Python state, made for real once the planned step has run."""

import builtins
import sys
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.state.names import calling_line, is_user_file
from lowtide.frameworks.torch.capture.state.observed_places import Flags
from lowtide.frameworks.torch.capture.state.places import ModuleStructure, Place
from lowtide.frameworks.torch.capture.state.python_state import Change, all_same
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import is_fake


@dataclass(frozen=True, slots=True)
class _Stored:
    position: int


@dataclass(frozen=True, slots=True)
class _Nested:
    spec: pytree.TreeSpec
    leaves: list[Any]


@dataclass(slots=True)
class CodeEffects:
    """Changes of Python state, with the tensors that the step computes for them, and printed lines."""

    changes: list[Change] = field(default_factory=list[Change])
    writes: list[tuple[Place, list[Any]]] = field(default_factory=list[tuple[Place, list[Any]]])
    stored: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    counts: list[tuple[Place, list[tuple[int, int]]]] = field(default_factory=list[tuple[Place, list[tuple[int, int]]]])
    printed: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list[tuple[tuple[Any, ...], dict[str, Any]]]
    )

    def add(self, change: Change, given: Mapping[int, torch.Tensor], counters: Set[str]) -> None:
        """Add a change. `given` has the live input tensors by `id`."""
        self.changes.append(change)
        counts = change.counts(counters)
        if counts:
            self.counts.append((change.place, counts))
        before = set(map(id, change.before))
        self.writes.append(
            (change.place, [value if id(value) in before else self._template(value, given) for value in change.now])
        )

    @property
    def is_counting(self) -> bool:
        return len(self.counts) == len(self.writes) and not self.printed

    def are_like(self, others: "CodeEffects") -> bool:
        if len(self.changes) != len(others.changes) or len(self.printed) != len(others.printed):
            return False
        return all(one.is_like(other) for one, other in zip(self.changes, others.changes, strict=True))

    def _template(self, value: Any, given: Mapping[int, torch.Tensor]) -> Any:
        leaves, spec = pytree.tree_flatten(value)
        marked = [self._marked(leaf, given) for leaf in leaves]
        if all(one is other for one, other in zip(marked, leaves, strict=True)):
            return value
        return marked[0] if marked[0] is not leaves[0] and leaves[0] is value else _Nested(spec, marked)

    def _marked(self, leaf: Any, given: Mapping[int, torch.Tensor]) -> Any:
        if id(leaf) in given:
            return given[id(leaf)]
        if is_fake(leaf):
            self.stored.append(leaf)
            return _Stored(len(self.stored) - 1)
        held: dict[str, Any] = getattr(leaf, "__dict__", {})
        if any(map(is_fake, held.values())):
            raise CannotReplayError(f"keeps tensors in an object of the class {type(leaf).__name__}")
        return leaf

    def count(self) -> None:
        for place, counts in self.counts:
            values = place.read()
            for position, difference in counts:
                values[position] += difference
            place.write(values)

    def make(self, tensors: Sequence[torch.Tensor]) -> None:
        def real(value: Any) -> Any:
            if isinstance(value, _Nested):
                return pytree.tree_unflatten(list(map(real, value.leaves)), value.spec)
            return tensors[value.position] if isinstance(value, _Stored) else value

        for place, values in self.writes:
            place.write(list(map(real, values)))
        for args, kwargs in self.printed:
            print(*args, **kwargs)


class CannotReplayError(Exception):
    """A change that a planned step cannot make."""


def reason_against(change: Change) -> str | None:
    if isinstance(change.place, Flags | ModuleStructure):
        return "changes the parameters or modules of the model"
    return None if change.place.is_restorable else "cannot be put back"


@contextmanager
def recorded_prints(record: list[tuple[tuple[Any, ...], dict[str, Any]]] | None) -> Generator[None]:
    """Record or drop the calls of `print`. Raises UnsupportedError for printed tensors."""
    plain = builtins.print

    def note(*args: Any, **kwargs: Any) -> None:
        if any(is_fake(each) or (isinstance(each, str) and "FakeTensor(" in each) for each in args):
            raise UnsupportedError(
                f"the step prints a tensor{calling_line()}, but its values are not known when the code runs; "
                "print the returned loss instead"
            )
        if record is not None:
            record.append((args, kwargs))

    builtins.print = note
    try:
        yield
    finally:
        builtins.print = plain


def line_that_changes(place: Place, run: Callable[[], object]) -> str:
    """Run again. Return the file and line that first changes a place, such as " (model.py:41)"."""
    before, line, found = place.read(), "", ""

    def local(frame: Any, event: str, argument: Any) -> Any:
        nonlocal line, found
        if not found and not all_same(place.read(), before):
            found = line
        line = f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        return local

    def trace(frame: Any, event: str, argument: Any) -> Any:
        return local if is_user_file(frame.f_code.co_filename) else None

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(earlier)
    return found
