"""The programs that were planned while compiling, newest last, so that they can be explained."""

from collections import deque

from lowtide.frameworks.torch.backend.planning import PlannedModule

_MOST_KEPT = 32
_planned: deque[PlannedModule] = deque(maxlen=_MOST_KEPT)


def remember(planned: PlannedModule) -> None:
    """Keep a planned program, and let the oldest go where there are too many."""
    _planned.append(planned)


def planned_programs() -> list[PlannedModule]:
    """Return the programs that were planned last, oldest first."""
    return list(_planned)


def forget_programs() -> None:
    """Let all of them go."""
    _planned.clear()
