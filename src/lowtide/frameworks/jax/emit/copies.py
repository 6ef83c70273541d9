"""Copies of a plan to the host's memory space and back, by the run that they come before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.index_spaces import Place
from lowtide.engine.plan import CopyIn, CopyOut, Plan, Run
from lowtide.frameworks.jax.emit.ties import tie
from lowtide.frameworks.jax.flat.program import Value
from lowtide.frameworks.jax.internals import in_device_space, in_host_space
from lowtide.frameworks.jax.reading.read import JaxTranslation


@dataclass(frozen=True, slots=True)
class Copy:
    """A stored value that goes to the host, or comes back."""

    value: Value
    is_out: bool


Copies = Mapping[Place, Sequence[Copy]]


def copies_of(plan: Plan, translation: JaxTranslation) -> Copies:
    """Return a plan's copies by the place of the run that they come before."""
    stored = {buffer: value for value, buffer in translation.buffers.items()}
    found: dict[Place, list[Copy]] = {}
    place = 0
    for step in plan.steps():
        if isinstance(step, Run):
            place += 1
        elif isinstance(step, CopyOut | CopyIn):
            found.setdefault(place, []).append(Copy(stored[step.buffer], isinstance(step, CopyOut)))
    return found


class HostSpace:
    """What lies in the host's space while a plan runs."""

    def __init__(self) -> None:
        self._away: dict[Value, Any] = {}

    def carry_out(self, copies: Sequence[Copy], held: dict[Value, Any], newest: Any) -> set[Value]:
        """Make copies, and let what comes back take the place of what is held; return the values that came back.

        What comes back is tied to the newest result, so that XLA cannot fetch it before.
        """
        back: set[Value] = set()
        for copy in copies:
            if copy.is_out:
                self._away[copy.value] = in_host_space(held[copy.value])
            else:
                here = in_device_space(self._away[copy.value])
                held[copy.value] = tie(here, [newest] if newest is not None else [])
                back.add(copy.value)
        return back
