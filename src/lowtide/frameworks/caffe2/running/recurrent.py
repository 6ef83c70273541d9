"""Kernels of recurrent ops and LSTM units."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments, step_nets
from lowtide.frameworks.caffe2.nets.recurrent import RowLink, Ties, gradient_ties_of, ties_of
from lowtide.frameworks.caffe2.running.kernels import Kernel, sigmoid
from lowtide.frameworks.caffe2.running.workspace import Array, Workspace
from lowtide.frameworks.caffe2.shapes.rules import first_rows

RunNet = Callable[[Any, Workspace], None]
_Arrays = Mapping[str, Array]


def _run(op: Any, inputs: Sequence[Array], run_net: RunNet) -> list[Array]:
    """Return an op's outputs; the last one, Caffe2's saved steps, is empty."""
    ties = ties_of(op)
    states, _ = _forward(op, ties, inputs[0], dict(zip(op.input, inputs, strict=True)), run_net)
    rows = [np.ascontiguousarray(states[state][row:]) for state, row in ties.aliases]
    return [*rows, np.zeros(0, np.uint8)][: len(op.output)]


def _forward(
    op: Any, ties: Ties, sequence: Array, outer: _Arrays, run_net: RunNet
) -> tuple[dict[str, Array], list[dict[str, Array]]]:
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
        steps.append(workspace.arrays((*written, ties.timestep)))
    return states, steps


def _gradient(op: Any, inputs: Sequence[Array], run_net: RunNet) -> list[Array]:
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
    return rows[0].sum(0) if start.ndim == 1 else rows[: first_rows(start.shape)].reshape(start.shape).copy()


def _step_net(op: Any, name: str) -> Any:
    (net,) = (net for argument, net in step_nets(op) if argument.name == name)
    return net


def _link(links: Sequence[RowLink], arrays: _Arrays, step: int, workspace: Workspace) -> None:
    for link in links:
        rows = arrays.get(link.outer)
        if rows is not None and link.offset + step + link.window <= len(rows):
            workspace.borrow(link.inner, rows[link.offset + step :][: link.window])


RECURRENT: Mapping[str, Callable[[Any, Sequence[Array], RunNet], list[Array]]] = {
    "RecurrentNetwork": _run,
    "RecurrentNetworkGradient": _gradient,
}


@dataclass(frozen=True, slots=True)
class _LstmStep:
    hidden: Array
    cell: Array
    gates: tuple[Array, Array, Array, Array]
    """Input, forget, output, candidate."""
    runs: Array
    keeps: Array


def _step(inputs: Sequence[Array], settings: Arguments) -> tuple[_LstmStep, Sequence[Array]]:
    hidden, cell, gates, *rest = inputs
    i, f, o, g = np.split(gates.reshape(*cell.shape[:-1], 4 * cell.shape[-1]), 4, axis=-1)
    bias = np.asarray(settings.number("forget_bias"), cell.dtype)
    runs = np.ones((1, cell.shape[-2], 1), cell.dtype)
    if settings.integer("sequence_lengths", 1):
        lengths, *rest = rest
        runs = (int(rest[0].reshape(-1)[0]) < lengths.reshape(1, -1, 1)).astype(cell.dtype)
    keeps = np.zeros_like(runs) if settings.integer("drop_states") else 1 - runs
    return _LstmStep(hidden, cell, (sigmoid(i), sigmoid(f + bias), sigmoid(o), np.tanh(g)), runs, keeps), rest[1:]


def _lstm_unit(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    step, _ = _step(inputs, settings)
    i, f, o, g = step.gates
    after = f * step.cell + i * g
    return [
        step.runs * (o * np.tanh(after)) + step.keeps * step.hidden,
        step.runs * after + step.keeps * step.cell,
    ]


def _lstm_unit_gradient(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    step, (_, after, d_hidden, d_cell) = _step(inputs, settings)
    i, f, o, g = step.gates
    squashed = np.tanh(after)
    d_after = d_cell + d_hidden * o * (1 - squashed * squashed)
    d_gates = [
        d_after * g * i * (1 - i),
        d_after * step.cell * f * (1 - f),
        d_hidden * squashed * o * (1 - o),
        d_after * i * (1 - g * g),
    ]
    return [
        step.keeps * d_hidden,
        step.runs * (d_after * f) + step.keeps * d_cell,
        np.concatenate([step.runs * gate for gate in d_gates], -1).reshape(inputs[2].shape),
    ]


LSTM: dict[str, Kernel] = {"LSTMUnit": _lstm_unit, "LSTMUnitGradient": _lstm_unit_gradient}
