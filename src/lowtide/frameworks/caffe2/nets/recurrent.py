"""How a recurrent op ties the blobs of its step net to those around it."""

from dataclasses import dataclass
from typing import Any

from lowtide.errors import MalformedInputError
from lowtide.frameworks.caffe2.nets.arguments import Arguments


@dataclass(frozen=True, slots=True)
class RowLink:
    """A blob of the step net that is one row of a sequence outside."""

    inner: str
    outer: str
    """A state, or an input of the op."""
    offset: int
    """At step t the row is t + offset."""


@dataclass(frozen=True, slots=True)
class Ties:
    """What a RecurrentNetwork says about its steps."""

    links: tuple[RowLink, ...]
    states: tuple[tuple[str, str], ...]
    """Every state with the input that it begins with; a state has one row more than there are steps."""
    aliases: tuple[tuple[str, int], ...]
    """Per output of the op, a state and the row that it begins at; a negative one is counted from the end."""
    timestep: str


def ties_of(op: Any) -> Ties:
    """Return the ties of a recurrent op, by the names that its blobs have now; raises MalformedInputError."""
    settings = Arguments(op)

    def now(name: str) -> str:
        return settings.text(f"{name}.rename", name)

    inner, outer = settings.texts("link_internal"), settings.texts("link_external")
    offsets = settings.integers("link_offset")
    states, starts = settings.texts("recurrent_states"), settings.integers("initial_recurrent_state_ids")
    sources, rows = settings.texts("alias_src"), settings.integers("alias_offset")
    if not (len(inner) == len(outer) == len(offsets) and len(states) == len(starts) and len(sources) == len(rows)):
        raise MalformedInputError(
            f"op {op.name or op.type!r}: links, states or aliases have no partner; write one each"
        )
    if any(not 0 <= start < len(op.input) for start in starts) or not set(sources) <= set(states):
        raise MalformedInputError(f"op {op.name or op.type!r}: a state begins with no input, or an alias has no state")
    return Ties(
        links=tuple(RowLink(a, now(b), c) for a, b, c in zip(inner, outer, offsets, strict=True)),
        states=tuple((now(state), op.input[start]) for state, start in zip(states, starts, strict=True)),
        aliases=tuple((now(state), row) for state, row in zip(sources, rows, strict=True)),
        timestep=settings.text("timestep", "timestep"),
    )
