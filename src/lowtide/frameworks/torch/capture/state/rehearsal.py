"""Rehearsals: runs of a step's Python code on fake tensors, before each call if the code has effects.

A rehearsal finds the program of a call and its effects on Python state. Calls with equal signatures are one program.
"""

import sys
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

import torch

from lowtide.core.collection import without_collection
from lowtide.core.errors import LowtideError, UnsupportedError, one_line
from lowtide.frameworks.torch.capture.state.effects import (
    CannotReplayError,
    CodeEffects,
    line_that_changes,
    reason_against,
    recorded_prints,
)
from lowtide.frameworks.torch.capture.state.names import is_followed_file
from lowtide.frameworks.torch.capture.state.python_state import Change, Guards, PythonState
from lowtide.frameworks.torch.capture.state.signature import SignatureRecorder
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError


class NewCodeError(BaseException):
    """Raised before unrehearsed code runs. No `except Exception` of the user catches it."""


class ExecutedCode:
    """Code objects that ran in rehearsals."""

    def __init__(self) -> None:
        self._seen: dict[int, CodeType] = {}
        """All code by `id`; references keep each `id` unique."""

    def __bool__(self) -> bool:
        return bool(self._seen)

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._seen

    @contextmanager
    def recorded(self, *, refuses_new: bool) -> Generator[None]:
        """Record code that runs in this context, or raise NewCodeError before new code runs.

        The garbage collector is off: it runs code that the step does not call.
        """
        seen, earlier, new = self._seen, sys.gettrace(), list[CodeType]()

        def trace(frame: FrameType, event: Any, argument: Any) -> Any:
            code = frame.f_code
            if id(code) not in seen:
                path = code.co_filename
                if refuses_new and path != "<string>" and is_followed_file(path):
                    new.append(code)
                    raise NewCodeError
                seen[id(code)] = code
            return None if earlier is None else earlier(frame, event, argument)

        with without_collection():
            sys.settrace(trace)
            try:
                yield
            finally:
                sys.settrace(earlier)
        if new:  # a finalizer ran it, where Python ignores errors
            raise NewCodeError


_MOST_NAMES = 3


class PythonChangedError(CaptureMismatchError):
    def __init__(self, described: Mapping[str, str]) -> None:
        self.names = frozenset(described)
        self.changes = ", ".join(described.values())
        super().__init__(f"{self.changes} changed since the step was captured; capture again")


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """The program of a call, and the effects of its Python code."""

    signature: tuple[Any, ...]
    effects: CodeEffects
    state: PythonState
    guards: Guards

    @property
    def is_pure(self) -> bool:
        return not self.effects.writes and not self.effects.printed


RunOnFakes = Callable[[SignatureRecorder], tuple[Mapping[int, torch.Tensor], tuple[Any, ...]]]
"""Runs a step on fake tensors. Returns its live inputs by `id`, and facts for the signature."""


def rehearse(state: PythonState, run: RunOnFakes) -> Rehearsal:
    """Run a step's code on fake tensors; return its program and effects. The state is put back.

    Raises UnsupportedError, with the source line, for effects that a planned step cannot make.
    """
    effects, recorder = CodeEffects(), SignatureRecorder()
    try:
        with recorded_prints(effects.printed):
            given, facts = run(recorder)
        reason = None if recorder.reads_at is None else "may depend on a number that it reads from a tensor"
        for change in state.changes():
            _add(effects, change, reason or reason_against(change), given, state, run)
        stored = tuple(map(recorder.number, effects.stored))
    except LowtideError:
        raise
    except Exception as error:
        if recorder.reads_at is None:
            raise
        raise UnsupportedError(
            f"the step reads a number from a tensor{recorder.reads_at}, and its Python code depends on it "
            f"({type(error).__name__}: {one_line(error, 100)}); avoid .item() and Python conditions on tensors"
        ) from error
    finally:
        state.restore()
    return Rehearsal(recorder.finish(stored, *facts), effects, state, state.guards)


def _add(
    effects: CodeEffects,
    change: Change,
    reason: str | None,
    given: Mapping[int, torch.Tensor],
    state: PythonState,
    run: RunOnFakes,
) -> None:
    try:
        if reason is None:
            effects.add(change, given, state.counters)
            return
    except CannotReplayError as error:
        reason = str(error)
    state.restore()
    with recorded_prints(None):
        line = line_that_changes(change.place, lambda: run(SignatureRecorder()))
    raise UnsupportedError(f"the step changes {change.name}{line}, which {reason}; a planned step cannot replay that")


def stored_tensors(state: PythonState, given: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
    """Return traced tensors stored in Python state, and put the state back."""
    effects = CodeEffects()
    for change in state.changes():
        if reason_against(change) is None:
            effects.add(change, given, state.counters)
    state.restore()
    return effects.stored


@dataclass(slots=True, eq=False)
class StepPython:
    """The Python state of a training step, shared by its programs."""

    state: PythonState | None = None
    pending: Rehearsal | None = None
    is_repeated: bool = False
    """Whether calls are measured: each starts from the same state, without effects."""
    _is_called: bool = False
    _changes: dict[str, str] = field(default_factory=dict[str, str])
    _after: list[list[Any]] | None = None
    _drawn: list[Change] = field(default_factory=list[Change])
    _executed: ExecutedCode = field(default_factory=ExecutedCode)
    _labels: set[str] = field(default_factory=set[str])

    @contextmanager
    def one_call(self) -> Generator[None]:
        """Share one rehearsal between all programs tried in this context."""
        self._is_called, self.pending = True, None
        try:
            yield
        finally:
            self._is_called, self.pending = False, None

    def rehearse(self, roots: Mapping[str, object], run: RunOnFakes) -> Rehearsal:
        self._note_changes()
        is_same = self.state is not None and set(roots) == self._labels and self.state.holds()
        self._labels, self._after, self._drawn = set(roots), None, []
        if self._executed:
            state = (
                self.state.renewed() if self.state is not None and is_same else PythonState.of(roots, self._executed)
            )
            with suppress(NewCodeError), self._executed.recorded(refuses_new=True):
                self.pending, self.state = rehearse(state, run), state
                return self.pending
        state = PythonState.of(roots)
        with self._executed.recorded(refuses_new=False):
            self.pending = rehearse(state, run)
        self.state = PythonState.of(roots, self._executed)
        self.pending = replace(self.pending, guards=self.state.guards)
        return self.pending

    def _note_changes(self) -> None:
        changes: list[Change] = []
        if self.state is not None:
            changes = self.state.changes_since(self._after) or [*self._drawn]
        described = {each.name: each.describe() for each in changes if not each.name.endswith(".training")}
        if self.state is not None and not described:
            described = {source: source for source in sorted(self.state.sources)}
        self._changes = dict(list(described.items())[:_MOST_NAMES])
        if len(described) > _MOST_NAMES:
            more = f"{len(described) - _MOST_NAMES} more values"
            self._changes[more] = more

    def check(self, rehearsed: "Rehearsed", rehearse_now: Callable[[], Rehearsal]) -> None:
        """Check that a captured program is that of the present call.

        Raises PythonChangedError if named values changed, else CaptureMismatchError.
        """
        if self.is_repeated:
            return
        if not self._is_called:
            self.pending = None
        if self.pending is None and rehearsed.still_holds(self.state):
            return
        rehearsal = self.pending or rehearse_now()
        if rehearsal.signature != rehearsed.signature:
            if not self._is_called:
                self.pending = None
            if self._changes:
                raise PythonChangedError(self._changes)
            raise CaptureMismatchError("the Python code of the step took another path; capture again")
        rehearsed.note(rehearsal)

    def finish(self, rehearsed: "Rehearsed", tensors: list[torch.Tensor]) -> None:
        """Make the effects of a program's present call, with the tensors that it stored."""
        pending, self.pending = self.pending, None
        if self.is_repeated:
            return
        if pending is None:
            rehearsed.effects.count()
        elif self.state is not None:
            pending.effects.make(tensors)
            self._after, self._drawn = self.state.guarded_values(), pending.effects.changes


class Rehearsed:
    """The rehearsal at a program's capture, and the state in which it needs no other."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.signature = rehearsal.signature
        self.effects = rehearsal.effects
        self.start = rehearsal.state if not rehearsal.is_pure else None
        self._guards = weakref.ref(rehearsal.guards)

    def note(self, rehearsal: Rehearsal) -> None:
        self._guards, self.effects = weakref.ref(rehearsal.guards), rehearsal.effects

    def still_holds(self, present: PythonState | None) -> bool:
        """Return whether the present call needs no rehearsal.

        The code only increments counters, reads neither clock nor files, and its state is unchanged.
        """
        if present is None or present.sources or not self.effects.is_counting:
            return False
        return self._guards() is present.guards and present.holds()
