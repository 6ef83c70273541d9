"""The ops of one transformer layer in a training step, as templates."""

from dataclasses import dataclass, replace

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

RECOMPUTED = tuple(
    TemplateOp(
        f"r.{op.name}",
        tuple(f"r.{read}" if read in VALUES else read for read in op.reads),
        tuple(f"r.{written}" for written in op.writes),
        in_place=tuple(f"r.{name}" for name in op.in_place),
    )
    for op in FORWARD[: [op.name for op in FORWARD].index("gelu") + 1]
)
"""What the backward pass of a layer needs, computed once more from the layer's input."""
BACKWARD_OF_RECOMPUTED = tuple(
    replace(op, reads=tuple(f"r.{read}" if read in VALUES else read for read in op.reads)) for op in BACKWARD
)
MOMENTA = {f"momentum.{weight}": size for weight, size in WEIGHTS.items()}
RECOMPUTED_VALUES = {f"r.{name}": size for name, size in VALUES.items() if name not in ("fc2", "out")}
