"""Registry of programs planned while compiling, with names and runs."""

import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.fx import Graph, Node

from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.reading.stack_trace import frames_of

_MAX_KEPT = 128
_planned: deque[PlannedModule] = deque(maxlen=_MAX_KEPT)
_planning: list[list[PlannedModule]] = []
_running: list[list[PlannedModule]] = []


def register(planned: PlannedModule) -> None:
    _planned.append(planned)
    for listener in _planning:
        listener.append(planned)


def planned_programs() -> list[PlannedModule]:
    return list(_planned)


def forget_programs() -> None:
    _planned.clear()
    forget_names()


@contextmanager
def programs_planned() -> Generator[list[PlannedModule]]:
    with _listening(_planning) as found:
        yield found


@dataclass(frozen=True, slots=True)
class RegistryState:
    planned: list[PlannedModule]
    heard: list[list[PlannedModule]]
    names: Counter[str]


def registry_state() -> RegistryState:
    return RegistryState(list(_planned), [list(listener) for listener in _planning], name_counts())


def restore_registry(before: RegistryState) -> None:
    _planned.clear()
    _planned.extend(before.planned)
    for listener, heard in zip(_planning, before.heard, strict=True):
        listener[:] = heard
    restore_names(before.names)


@contextmanager
def programs_run() -> Generator[list[PlannedModule]]:
    with _listening(_running) as found:
        yield found


def unregister(programs: Iterable[PlannedModule]) -> None:
    for program in programs:
        if program in _planned:
            _planned.remove(program)


def set_reported_budget(program: PlannedModule, allowed: int) -> None:
    """Show the user's budget in the result of a program planned for another target."""
    space, budget = program.graph.spaces[0].name, program.result.budget
    limited_by = {**budget.limited_by, space: "the budget"}
    said = replace(budget, allowed={**budget.allowed, space: allowed}, limited_by=limited_by)
    saying = replace(program, result=replace(program.result, budget=said))
    for programs in (_planned, *_planning):
        if program in programs:
            programs[programs.index(program)] = saying


def recording_runs(
    run_with: Callable[[Sequence[Any]], Any], programs: Callable[[], list[PlannedModule]]
) -> Callable[..., Any]:
    """Return a function that reports to `programs_run`, without copied attributes, which TorchDynamo follows."""

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


_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+")
_given: Counter[str] = Counter()


def new_name(graph: Graph) -> str:
    """Return a name like `forward (model.py:14)`, or the first module's class.

    It depends only on the graph and earlier names, so ranks agree.
    """
    name = next((found for node in graph.nodes if (found := _beginning(node))), None) or _first_module(graph) or "graph"
    _given[name] += 1
    return name if _given[name] == 1 else f"{name} #{_given[name]}"


def forget_names() -> None:
    _given.clear()


def name_counts() -> Counter[str]:
    return Counter(_given)


def restore_names(names: Counter[str]) -> None:
    _given.clear()
    _given.update(names)


def _beginning(node: Node) -> str | None:
    frame = next((frame for frame in frames_of(node) if not frame.in_pytorch), None)
    if frame is None:
        return None
    resumed = _RESUMED.fullmatch(frame.function)
    function = frame.function if resumed is None else resumed["function"]
    return f"{function} ({Path(frame.file).name}:{frame.line})"


def _first_module(graph: Graph) -> str | None:
    for node in graph.nodes:
        modules: dict[str, tuple[str, type | str]] = node.meta.get("nn_module_stack") or {}
        for _, kind in modules.values():
            return kind if isinstance(kind, str) else kind.__name__
    return None
