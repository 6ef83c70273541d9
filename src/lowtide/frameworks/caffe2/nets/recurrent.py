"""Links between a step net and its outer net."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.caffe2.nets.arguments import GRADIENT, Arguments


@dataclass(frozen=True, slots=True)
class RowLink:
    """Rows of an outer sequence, as a blob of the step net."""

    inner: str
    outer: str
    offset: int
    """Step t begins at row t + offset."""
    window: int = 1


@dataclass(frozen=True, slots=True)
class Ties:
    links: tuple[RowLink, ...]
    states: tuple[tuple[str, str], ...]
    """Every state with the input of its first row, or of all its rows (three dimensions)."""
    aliases: tuple[tuple[str, int], ...]
    """A state and first row per output; negative rows count from the end."""
    timestep: str


@dataclass(frozen=True, slots=True)
class GradientTies:
    forward: Ties
    inputs: tuple[str, ...]
    """Inputs of the RecurrentNetwork. They follow gradients of its outputs."""
    outputs_with_grads: tuple[int, ...]
    links: tuple[RowLink, ...]
    """Rows of the gradients of states and of the sequence (the first output)."""
    state_grads: tuple[str, ...]
    param_grads: tuple[tuple[str, str], ...]
    """Every parameter with its gradient in one step. The sums are the next outputs."""


def ties_of(op: Any, first: int = 0) -> Ties:
    """Return the ties of a recurrent op with inputs from `first` on; raises MalformedInputError."""
    settings, inputs = Arguments(op), list(op.input)[first:]
    states, starts = settings.texts("recurrent_states"), settings.integers("initial_recurrent_state_ids")
    sources, rows = settings.texts("alias_src"), settings.integers("alias_offset")
    links = _links(op, "link", settings.integers("link_window"))
    if len(states) != len(starts) or len(sources) != len(rows):
        raise _malformed(op, "lists of states or aliases differ in length")
    if any(not 0 <= start < len(inputs) for start in starts) or not set(sources) <= set(states):
        raise _malformed(op, "a state begins with no input, or an alias has no state")
    return Ties(
        links=links,
        states=tuple((_current(op, state), inputs[start]) for state, start in zip(states, starts, strict=True)),
        aliases=tuple((_current(op, state), row) for state, row in zip(sources, rows, strict=True)),
        timestep=settings.text("timestep", "timestep"),
    )


def gradient_ties_of(op: Any) -> GradientTies:
    settings = Arguments(op)
    with_grads = settings.integers("outputs_with_grads")
    forward = ties_of(op, len(with_grads))
    n_inputs = len(op.input) - len(with_grads) - len(forward.aliases) - 1
    inputs, params = tuple(op.input[len(with_grads) :][: max(0, n_inputs)]), settings.integers("param")
    named = [_current(op, name) for name in settings.texts("param_grads")] or list(op.output[1 : 1 + len(params)])
    if len(op.output) != 1 + len(params) + len(forward.states) or not inputs or len(named) != len(params):
        raise _malformed(op, "inputs or outputs are missing")
    if any(not 0 <= place < len(forward.aliases) for place in with_grads) or not set(params) <= set(range(n_inputs)):
        raise _malformed(op, "a gradient is of no input or output")
    return GradientTies(
        forward=forward,
        inputs=inputs,
        outputs_with_grads=tuple(with_grads),
        links=_links(op, "backward_link"),
        state_grads=tuple(_current(op, f"{state}_grad") for state in settings.texts("recurrent_states")),
        param_grads=tuple((inputs[param], name) for param, name in zip(params, named, strict=True)),
    )


def step_ties_of(op: Any) -> Ties:
    """Return the ties of a recurrent op or its gradient, with gradients as states; raises MalformedInputError."""
    if op.type != GRADIENT:
        return ties_of(op)
    ties = gradient_ties_of(op)
    begins = [begin for _, begin in ties.forward.states]
    grads = (*zip(ties.state_grads, begins, strict=True), (op.output[0], ties.inputs[0]))
    return replace(ties.forward, links=ties.forward.links + ties.links, states=ties.forward.states + grads)


def _links(op: Any, kind: str, windows: Sequence[int] = ()) -> tuple[RowLink, ...]:
    settings = Arguments(op)
    inner, outer = settings.texts(f"{kind}_internal"), settings.texts(f"{kind}_external")
    offsets = settings.integers(f"{kind}_offset")
    windows = windows or [1] * len(inner)
    if not len(inner) == len(outer) == len(offsets) == len(windows):
        raise _malformed(op, "lists of links differ in length")
    if any(offset < 0 or window < 1 for offset, window in zip(offsets, windows, strict=True)):
        raise _malformed(op, "a link begins before its sequence, or is empty")
    names = ((_current(op, a), _current(op, b)) for a, b in zip(inner, outer, strict=True))
    return tuple(RowLink(a, b, c, d) for (a, b), c, d in zip(names, offsets, windows, strict=True))


def _current(op: Any, name: str) -> str:
    """Return a blob's current name; gradient ops keep first names in their links."""
    return Arguments(op).text(f"{name}.rename", name) if op.type == GRADIENT else name


def _malformed(op: Any, problem: str) -> MalformedInputError:
    return MalformedInputError(f"op {op.name or op.type!r}: {problem}")
