"""Generated graphs of any size: a layered transformer's training step with updates at the end, and a random program.

Built straight from arrays, so that a million ops take seconds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformer_layer import (
    BACKWARD,
    BACKWARD_OF_RECOMPUTED,
    FORWARD,
    GRADIENTS,
    MOMENTA,
    RECOMPUTED,
    RECOMPUTED_VALUES,
    ROW,
    UPDATE,
    VALUES,
    WEIGHTS,
    TemplateOp,
)

from lowtide.engine.graph import Graph, Lifetime, Rows, Space


def training_step(n_ops: int, *, checkpointed: bool = False) -> Graph:
    """Build the step with at least `n_ops` ops; the same number always gives the same graph.

    Where it is checkpointed, every layer keeps its input only and computes the rest once more before its backward pass.
    """
    backward = RECOMPUTED + BACKWARD_OF_RECOMPUTED if checkpointed else BACKWARD
    weights = WEIGHTS | MOMENTA
    layer = weights | VALUES | GRADIENTS | (RECOMPUTED_VALUES if checkpointed else {})
    n_layers = max(1, -(-(n_ops - 2) // (len(FORWARD) + len(backward) + len(UPDATE))))
    names = _Names(layer, n_layers)
    down, up = np.arange(n_layers), np.arange(n_layers)[::-1]
    phases = [(FORWARD, down), (backward, up), (UPDATE, down)]

    def rows(column: str, embed: list[int], loss: list[int]) -> Rows:
        blocks = [names.block(template, column, layers) for template, layers in phases]
        single = [np.array(embed, np.int32), np.array(loss, np.int32)]
        lengths = [np.array([len(embed)]), blocks[0][0], np.array([len(loss)]), blocks[1][0], blocks[2][0]]
        values = [single[0], blocks[0][1], single[1], blocks[1][1], blocks[2][1]]
        return Rows(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64), np.concatenate(values))

    last_out = (n_layers - 1) * len(layer) + names.places["out"]
    kinds = ["embed", *_kinds(FORWARD, n_layers), "loss", *_kinds(backward, n_layers), *_kinds(UPDATE, n_layers)]
    n_all = len(kinds)
    lifetimes = [Lifetime.PERSISTENT] * len(weights) + [Lifetime.INTERMEDIATE] * (len(layer) - len(weights))
    return Graph(
        name=f"{'checkpointed ' if checkpointed else ''}transformer training step, {n_layers} layers",
        spaces=(Space(name="device"),),
        buffer_names=[*(f"{name}@{number}" for number in range(n_layers) for name in layer), "embedding", "d.loss"],
        sizes=np.append(np.tile(np.array(list(layer.values()), np.int64), n_layers), [ROW, ROW]),
        lifetimes=np.append(np.tile(np.array(lifetimes, np.uint8), n_layers), [3, 3]).astype(np.uint8),
        buffer_spaces=np.zeros(n_layers * len(layer) + 2, np.int16),
        op_names=[f"{kind}#{op}" for op, kind in enumerate(kinds)],
        op_kinds=kinds,
        reads=rows("reads", [], [last_out]),
        writes=rows("writes", [names.embedding], [names.loss_gradient]),
        mutates=rows("mutates", [], []),
        after=rows("", [], []),
        in_place=rows("in_place", [], []),
        **_plain_ops(n_all),
    )


def random_program(n_ops: int, *, recent: int) -> Graph:
    """Build a program of one-output ops that read two of the `recent` buffers before them, picked by a fixed seed.

    The wider the choice, the more ops are ready at a time, which is what makes orders slow.
    """
    rng = np.random.default_rng(0)
    ops = np.arange(n_ops, dtype=np.int64)
    back = rng.integers(1, recent + 1, size=(n_ops, 2))
    operands = ops[:, None] - back
    exists = operands >= 0
    reads = Rows(np.append(0, np.cumsum(exists.sum(axis=1))).astype(np.int64), operands[exists].astype(np.int32))
    nothing = Rows(np.zeros(n_ops + 1, np.int64), np.zeros(0, np.int32))
    return Graph(
        name=f"random program over {recent} recent buffers",
        spaces=(Space(name="device"),),
        buffer_names=[f"b{op}" for op in range(n_ops)],
        sizes=rng.integers(0, 1 << 20, size=n_ops),
        lifetimes=np.full(n_ops, Lifetime.INTERMEDIATE, np.uint8),
        buffer_spaces=np.zeros(n_ops, np.int16),
        op_names=[f"op{op}" for op in range(n_ops)],
        op_kinds=["op"] * n_ops,
        reads=reads,
        writes=Rows(np.arange(n_ops + 1, dtype=np.int64), ops.astype(np.int32)),
        mutates=nothing,
        after=nothing,
        in_place=nothing,
        **_plain_ops(n_ops),
    )


def _plain_ops(n_ops: int) -> dict[str, Any]:
    """Return the columns that are the same for all ops."""
    return {
        "sources": [None] * n_ops,
        "scratch": np.zeros(n_ops, np.int64),
        "pure": np.ones(n_ops, np.bool_),
        "ordered": np.zeros(n_ops, np.bool_),
        "cost": np.ones(n_ops),
        "flops": np.full(n_ops, np.nan),
        "traffic": np.full(n_ops, np.nan),
        "ranks": np.ones(n_ops, np.int32),
        "repeatable": np.zeros(n_ops, np.bool_),
        "rank_spans": np.ones(n_ops, np.int32),
        "callees": [()] * n_ops,
        "devices": [None] * n_ops,
    }


class _Names:
    """Buffer ids of what the templates name; a layer's buffers follow one another."""

    def __init__(self, layer: Mapping[str, int], n_layers: int) -> None:
        self.per_layer = len(layer)
        self.places = {name: place for place, name in enumerate(layer)}
        self.embedding = n_layers * len(layer)
        self.loss_gradient = self.embedding + 1

    def block(
        self, template: tuple[TemplateOp, ...], column: str, layers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return row lengths and buffer ids of one column of a phase, layer by layer."""
        cells: list[tuple[str, ...]] = [getattr(op, column, ()) for op in template]
        values = np.empty((len(layers), sum(map(len, cells))), np.int32)
        for place, reference in enumerate(name for cell in cells for name in cell):
            if reference == "prev.out":
                before = (layers - 1) * self.per_layer + self.places["out"]
                values[:, place] = np.where(layers == 0, self.embedding, before)
            elif reference == "next.d.in":
                after = (layers + 1) * self.per_layer + self.places["d.in"]
                values[:, place] = np.where(layers == layers.max(), self.loss_gradient, after)
            else:
                values[:, place] = layers * self.per_layer + self.places[reference]
        return np.tile([len(cell) for cell in cells], len(layers)), values.ravel()


def _kinds(template: tuple[TemplateOp, ...], n_layers: int) -> list[str]:
    return [op.name for op in template] * n_layers
