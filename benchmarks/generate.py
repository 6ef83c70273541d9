"""Generated graphs of any size: a layered transformer's training step with updates at the end, and a random program.

Built straight from arrays, so that a million ops take seconds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime, Rows, Space

TOKENS, WIDTH, HEADS = 128, 768, 12
ROW = TOKENS * WIDTH * 4
SQUARE = WIDTH * WIDTH * 4
SCORES = HEADS * TOKENS * TOKENS * 4

WEIGHTS = {"ln1.w": WIDTH * 4, "qkv.w": 3 * SQUARE, "proj.w": SQUARE, "ln2.w": WIDTH * 4}
WEIGHTS |= {"fc1.w": 4 * SQUARE, "fc2.w": 4 * SQUARE}
VALUES = {"ln1": ROW, "qkv": 3 * ROW, "scores": SCORES, "softmax": SCORES, "context": ROW, "proj": ROW, "mid": ROW}
VALUES |= {"ln2": ROW, "fc1": 4 * ROW, "gelu": 4 * ROW, "fc2": ROW, "out": ROW}
GRADIENTS = {"d.gelu": 4 * ROW, "d.fc1": 4 * ROW, "d.ln2": ROW, "d.mid.0": ROW, "d.mid": ROW, "d.context": ROW}
GRADIENTS |= {"d.softmax": SCORES, "d.scores": SCORES, "d.qkv": 3 * ROW, "d.ln1": ROW, "d.in.0": ROW, "d.in": ROW}
GRADIENTS |= {f"d.{weight}": size for weight, size in WEIGHTS.items()}


@dataclass(frozen=True)
class TemplateOp:
    """One op of a layer; "prev.out" is the layer before's result, "next.d.in" the gradient from the layer after."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutates: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()


FORWARD = (
    TemplateOp("ln1", ("prev.out", "ln1.w"), ("ln1",)),
    TemplateOp("qkv", ("ln1", "qkv.w"), ("qkv",)),
    TemplateOp("scores", ("qkv",), ("scores",)),
    TemplateOp("softmax", ("scores",), ("softmax",), in_place=("scores", "softmax")),
    TemplateOp("context", ("softmax", "qkv"), ("context",)),
    TemplateOp("proj", ("context", "proj.w"), ("proj",)),
    TemplateOp("mid", ("prev.out", "proj"), ("mid",), in_place=("proj", "mid")),
    TemplateOp("ln2", ("mid", "ln2.w"), ("ln2",)),
    TemplateOp("fc1", ("ln2", "fc1.w"), ("fc1",)),
    TemplateOp("gelu", ("fc1",), ("gelu",)),
    TemplateOp("fc2", ("gelu", "fc2.w"), ("fc2",)),
    TemplateOp("out", ("mid", "fc2"), ("out",), in_place=("fc2", "out")),
)
BACKWARD = (
    TemplateOp("d.gelu", ("next.d.in", "fc2.w"), ("d.gelu",)),
    TemplateOp("d.fc2.w", ("next.d.in", "gelu"), ("d.fc2.w",)),
    TemplateOp("d.fc1", ("d.gelu", "fc1"), ("d.fc1",), in_place=("d.gelu", "d.fc1")),
    TemplateOp("d.ln2", ("d.fc1", "fc1.w"), ("d.ln2",)),
    TemplateOp("d.fc1.w", ("d.fc1", "ln2"), ("d.fc1.w",)),
    TemplateOp("d.mid.0", ("d.ln2", "mid", "ln2.w"), ("d.mid.0", "d.ln2.w")),
    TemplateOp("d.mid", ("d.mid.0", "next.d.in"), ("d.mid",), in_place=("d.mid.0", "d.mid")),
    TemplateOp("d.context", ("d.mid", "proj.w"), ("d.context",)),
    TemplateOp("d.proj.w", ("d.mid", "context"), ("d.proj.w",)),
    TemplateOp("d.softmax", ("d.context", "qkv"), ("d.softmax",)),
    TemplateOp("d.scores", ("d.softmax", "softmax"), ("d.scores",), in_place=("d.softmax", "d.scores")),
    TemplateOp("d.qkv", ("d.scores", "d.context", "softmax", "qkv"), ("d.qkv",)),
    TemplateOp("d.ln1", ("d.qkv", "qkv.w"), ("d.ln1",)),
    TemplateOp("d.qkv.w", ("d.qkv", "ln1"), ("d.qkv.w",)),
    TemplateOp("d.in.0", ("d.ln1", "prev.out", "ln1.w"), ("d.in.0", "d.ln1.w")),
    TemplateOp("d.in", ("d.in.0", "d.mid"), ("d.in",), in_place=("d.in.0", "d.in")),
)
UPDATE = tuple(
    TemplateOp(f"update.{weight}", (f"d.{weight}",), (), mutates=(weight, f"momentum.{weight}")) for weight in WEIGHTS
)
LOCALS = WEIGHTS | {f"momentum.{weight}": size for weight, size in WEIGHTS.items()} | VALUES | GRADIENTS
PLACES = {name: place for place, name in enumerate(LOCALS)}
PER_LAYER = len(FORWARD) + len(BACKWARD) + len(UPDATE)


def training_step(n_ops: int) -> Graph:
    """Build the step with at least `n_ops` ops; the same number always gives the same graph."""
    n_layers = max(1, -(-(n_ops - 2) // PER_LAYER))
    embedding, loss_gradient = n_layers * len(LOCALS), n_layers * len(LOCALS) + 1
    down, up = np.arange(n_layers), np.arange(n_layers)[::-1]
    phases = [(FORWARD, down), (BACKWARD, up), (UPDATE, down)]

    def rows(column: str, embed: list[int], loss: list[int]) -> Rows:
        blocks = [_block(template, column, layers, embedding, loss_gradient) for template, layers in phases]
        single = [np.array(embed, np.int32), np.array(loss, np.int32)]
        lengths = [np.array([len(embed)]), blocks[0][0], np.array([len(loss)]), blocks[1][0], blocks[2][0]]
        values = [single[0], blocks[0][1], single[1], blocks[1][1], blocks[2][1]]
        return Rows(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64), np.concatenate(values))

    last_out = (n_layers - 1) * len(LOCALS) + PLACES["out"]
    kinds = ["embed", *_kinds(FORWARD, n_layers), "loss", *_kinds(BACKWARD, n_layers), *_kinds(UPDATE, n_layers)]
    n_all = len(kinds)
    lifetimes = [Lifetime.PERSISTENT] * (2 * len(WEIGHTS)) + [Lifetime.INTERMEDIATE] * (len(VALUES) + len(GRADIENTS))
    return Graph(
        name=f"transformer training step, {n_layers} layers",
        spaces=(Space(name="device"),),
        buffer_names=[*(f"{name}@{layer}" for layer in range(n_layers) for name in LOCALS), "embedding", "d.loss"],
        sizes=np.append(np.tile(np.array(list(LOCALS.values()), np.int64), n_layers), [ROW, ROW]),
        lifetimes=np.append(np.tile(np.array(lifetimes, np.uint8), n_layers), [3, 3]).astype(np.uint8),
        buffer_spaces=np.zeros(n_layers * len(LOCALS) + 2, np.int16),
        op_names=[f"{kind}#{op}" for op, kind in enumerate(kinds)],
        op_kinds=kinds,
        reads=rows("reads", [], [last_out]),
        writes=rows("writes", [embedding], [loss_gradient]),
        mutates=rows("mutates", [], []),
        after=rows("", [], []),
        in_place=rows("in_place", [], []),
        scratch=np.zeros(n_all, np.int64),
        pure=np.ones(n_all, np.bool_),
        ordered=np.zeros(n_all, np.bool_),
        cost=np.ones(n_all),
        callees=[()] * n_all,
        devices=[None] * n_all,
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
        scratch=np.zeros(n_ops, np.int64),
        pure=np.ones(n_ops, np.bool_),
        ordered=np.zeros(n_ops, np.bool_),
        cost=np.ones(n_ops),
        callees=[()] * n_ops,
        devices=[None] * n_ops,
    )


def _kinds(template: tuple[TemplateOp, ...], n_layers: int) -> list[str]:
    return [op.name for op in template] * n_layers


def _block(
    template: tuple[TemplateOp, ...],
    column: str,
    layers: NDArray[np.int64],
    embedding: int,
    loss_gradient: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return row lengths and buffer ids of one column of a phase, layer by layer."""
    cells: list[tuple[str, ...]] = [getattr(op, column, ()) for op in template]
    values = np.empty((len(layers), sum(map(len, cells))), np.int32)
    last = layers.max()
    for place, reference in enumerate(name for cell in cells for name in cell):
        if reference == "prev.out":
            before = (layers - 1) * len(LOCALS) + PLACES["out"]
            values[:, place] = np.where(layers == 0, embedding, before)
        elif reference == "next.d.in":
            after = (layers + 1) * len(LOCALS) + PLACES["d.in"]
            values[:, place] = np.where(layers == last, loss_gradient, after)
        else:
            values[:, place] = layers * len(LOCALS) + PLACES[reference]
    return np.tile([len(cell) for cell in cells], len(layers)), values.ravel()
