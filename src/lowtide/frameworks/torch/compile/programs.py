"""The programs that were planned while compiling, newest last, so that they can be explained, and which of them run."""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lowtide.frameworks.torch.compile.names import forget_names, given_names, put_back_names
from lowtide.frameworks.torch.compile.planned_program import PlannedModule

_MOST_KEPT = 128
_planned: deque[PlannedModule] = deque(maxlen=_MOST_KEPT)
_planning: list[list[PlannedModule]] = []
_running: list[list[PlannedModule]] = []


def remember(planned: PlannedModule) -> None:
    """Keep a planned program, and let the oldest go where there are too many."""
    _planned.append(planned)
    for listener in _planning:
        listener.append(planned)


def planned_programs() -> list[PlannedModule]:
    """Return the programs that were planned last, oldest first."""
    return list(_planned)


def forget_programs() -> None:
    """Let all of them go; names are given anew."""
    _planned.clear()
    forget_names()


@contextmanager
def programs_planned() -> Generator[list[PlannedModule]]:
    """Collect the programs that are planned within."""
    with _listening(_planning) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is remembered at some time."""

    planned: list[PlannedModule]
    heard: list[list[PlannedModule]]
    names: Counter[str]


def remembered() -> Remembered:
    """Return what is remembered now."""
    return Remembered(list(_planned), [list(listener) for listener in _planning], given_names())


def put_back(before: Remembered) -> None:
    """Forget the programs that were planned since, and their names; whoever listened forgets them, too."""
    _planned.clear()
    _planned.extend(before.planned)
    for listener, heard in zip(_planning, before.heard, strict=True):
        listener[:] = heard
    put_back_names(before.names)


@contextmanager
def programs_run() -> Generator[list[PlannedModule]]:
    """Collect the programs that run within, each once, in the order of their first run."""
    with _listening(_running) as found:
        yield found


def forget(programs: Iterable[PlannedModule]) -> None:
    """Let some programs go, which others take the place of."""
    for program in programs:
        if program in _planned:
            _planned.remove(program)


def say_allowed(program: PlannedModule, allowed: int) -> None:
    """Let a program's result say what the user allows in the first space, where it was planned for another goal."""
    space, budget = program.graph.spaces[0].name, program.result.budget
    limited_by = {**budget.limited_by, space: "the budget"}
    said = replace(budget, allowed={**budget.allowed, space: allowed}, limited_by=limited_by)
    saying = replace(program, result=replace(program.result, budget=said))
    for programs in (_planned, *_planning):
        if program in programs:
            programs[programs.index(program)] = saying


def noting_runs(
    run_with: Callable[[Sequence[Any]], Any], programs: Callable[[], list[PlannedModule]]
) -> Callable[..., Any]:
    """Return a compiled function that says which programs it runs to whoever listens.

    It takes over no attributes: TorchDynamo would look through them for the function within.
    """

    def run(*inputs: Any) -> Any:
        for listener in _running:
            listener.extend(program for program in programs() if program not in listener)
        return run_with(inputs)

    return run


@contextmanager
def _listening(listeners: list[list[PlannedModule]]) -> Generator[list[PlannedModule]]:
    found: list[PlannedModule] = []
    listeners.append(found)
    try:
        yield found
    finally:
        listeners[:] = [listener for listener in listeners if listener is not found]
