"""Recurrent ops run step by step, forward and backward."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import step_nets
from lowtide.frameworks.caffe2.nets.recurrent import RowLink, Ties, gradient_ties_of, ties_of
from lowtide.frameworks.caffe2.running.kernels.kernel import Array
from lowtide.frameworks.caffe2.running.workspace import Workspace
from lowtide.frameworks.caffe2.shapes.rules import first_rows

RunNet = Callable[[Any, Workspace], None]
_Arrays = Mapping[str, Array]


def _run(op: Any, inputs: Sequence[Array], run_net: RunNet) -> list[Array]:
    """Run a step net once for every row of the first input; states keep all their rows.

    The blobs of the steps, which Caffe2 keeps for the gradient behind the other outputs, are nobody's to see.
    """
    ties = ties_of(op)
    states, _ = _forward(op, ties, inputs[0], dict(zip(op.input, inputs, strict=True)), run_net)
    rows = [np.ascontiguousarray(states[state][row:]) for state, row in ties.aliases]
    return [*rows, np.zeros(0, np.uint8)][: len(op.output)]


def _forward(
    op: Any, ties: Ties, sequence: Array, outer: _Arrays, run_net: RunNet
) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """Return all states and per step the blobs that its net and its links wrote."""
    states: dict[str, Array] = {}
    n_steps, batch = sequence.shape[:2]
    for state, start in ties.states:
        begin = outer[start]
        states[state] = np.zeros((n_steps + first_rows(begin.shape), batch, begin.shape[-1]), begin.dtype)
        states[state][: first_rows(begin.shape)] = begin
    step_net = _step_net(op, "step_net")
    written = {link.inner for link in ties.links}.union(name for inner in step_net.op for name in inner.output)
    steps: list[dict[str, Array]] = []
    for step in range(n_steps):
        workspace = Workspace({**outer, ties.timestep: np.asarray([step], np.int32)})
        _link(ties.links, {**outer, **states}, step, workspace)
        run_net(step_net, workspace)
        steps.append(workspace.take((*written, ties.timestep)))
    return states, steps


def _gradient(op: Any, inputs: Sequence[Array], run_net: RunNet) -> list[Array]:
    """Run the backward step net from the last row to the first, adding up what the steps give.

    What the forward steps computed is computed once more. Outputs are the gradients of the sequence, of the parameters
    and of what the states begin with.
    """
    ties = gradient_ties_of(op)
    outer = dict(zip(op.input, inputs, strict=True))
    sequence = outer[ties.inputs[0]]
    forward, steps = _forward(op, ties.forward, sequence, outer, run_net)
    states = [state for state, _ in ties.forward.states]
    grads = {name: np.zeros_like(forward[state]) for name, state in zip(ties.state_grads, states, strict=True)}
    grads[op.output[0]] = np.zeros_like(sequence)
    added: list[tuple[Array, Array]] = []
    for place, from_outside in zip(ties.outputs_with_grads, inputs, strict=False):
        state, row = ties.forward.aliases[place]
        rows = grads[ties.state_grads[states.index(state)]][row:]
        if row < 0:
            rows += from_outside.reshape(rows.shape)
        else:
            added.append((rows, from_outside.reshape(rows.shape)))
    sums = [np.zeros_like(outer[param]) for param, _ in ties.param_grads]
    backward = _step_net(op, "backward_step_net")
    for step in reversed(range(len(steps))):
        for rows, from_outside in added:
            rows[step] += from_outside[step]
        workspace = Workspace({**outer, **steps[step]})
        _link(ties.links, grads, step, workspace)
        run_net(backward, workspace)
        for total, (_, name) in zip(sums, ties.param_grads, strict=True):
            total += workspace.read(name, "a step")
    begins = zip(ties.state_grads, ties.forward.states, strict=True)
    return [grads[op.output[0]], *sums, *(_of_begin(grads[name], outer[start]) for name, (_, start) in begins)]


def _of_begin(rows: Array, start: Array) -> Array:
    """Return the gradient of what a state begins with; one row may stand for all sequences of the batch."""
    return rows[0].sum(0) if start.ndim == 1 else rows[: first_rows(start.shape)].reshape(start.shape).copy()


def _step_net(op: Any, name: str) -> Any:
    (net,) = (net for argument, net in step_nets(op) if argument.name == name)
    return net


def _link(links: Sequence[RowLink], arrays: _Arrays, step: int, workspace: Workspace) -> None:
    """Make blobs of a step stand for rows outside: what it writes to the one is in the other at once."""
    for link in links:
        rows = arrays.get(link.outer)
        if rows is not None and link.offset + step + link.window <= len(rows):
            workspace.lend(link.inner, rows[link.offset + step :][: link.window])


RECURRENT: Mapping[str, Callable[[Any, Sequence[Array], RunNet], list[Array]]] = {
    "RecurrentNetwork": _run,
    "RecurrentNetworkGradient": _gradient,
}
