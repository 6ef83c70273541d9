"""One step of an LSTM behind its matrix products, and its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels.elementwise import sigmoid
from lowtide.frameworks.caffe2.running.kernels.kernel import Array, Kernel


@dataclass(frozen=True, slots=True)
class _Step:
    """What goes into a step; a sequence that has ended keeps its state, or drops it to 0."""

    hidden: Array
    cell: Array
    gates: tuple[Array, Array, Array, Array]
    """Input, forget, output, candidate."""
    runs: Array
    """1 where the sequence has not ended yet."""
    keeps: Array
    """1 where it has and its state stays."""


def _step(inputs: Sequence[Array], settings: Arguments) -> tuple[_Step, Sequence[Array]]:
    """Return the step and what comes behind its inputs: hidden, cell, gates, lengths unless there are none, time."""
    hidden, cell, gates, *rest = inputs
    i, f, o, g = np.split(gates.reshape(*cell.shape[:-1], 4 * cell.shape[-1]), 4, axis=-1)
    bias = np.asarray(settings.number("forget_bias"), cell.dtype)
    runs = np.ones((1, cell.shape[-2], 1), cell.dtype)
    if settings.integer("sequence_lengths", 1):
        lengths, *rest = rest
        runs = (int(rest[0].reshape(-1)[0]) < lengths.reshape(1, -1, 1)).astype(cell.dtype)
    keeps = np.zeros_like(runs) if settings.integer("drop_states") else 1 - runs
    return _Step(hidden, cell, (sigmoid(i), sigmoid(f + bias), sigmoid(o), np.tanh(g)), runs, keeps), rest[1:]


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
