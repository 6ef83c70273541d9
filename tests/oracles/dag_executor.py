"""Caffe2's executor of dag nets, as unkind as it may be: several workers, any interleaving, storage spoilt early."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.frameworks.caffe2.running.run_net import run_op

Arrays = Mapping[str, np.ndarray]


def run_dag(
    net: Any, inputs: Arrays, results: Iterable[str], waits: Sequence[Iterable[int]], workers: int, seed: int
) -> dict[str, np.ndarray]:
    """Run a net and return what some blobs hold in the end.

    An op may start once all that it waits for has finished; which one does, and which running one finishes next, the
    seed decides. What an op will write is spoilt when it starts, and what it reads is looked at again when it finishes:
    whoever shares its storage with an op that runs at the same time is found out.
    """
    rng = random.Random(seed)
    blobs = {name: array.copy() for name, array in inputs.items()}
    running: dict[int, dict[str, np.ndarray]] = {}
    finished: set[int] = set()
    while len(finished) < len(net.op):
        ready = [
            op for op in range(len(net.op)) if op not in running and op not in finished and set(waits[op]) <= finished
        ]
        if ready and len(running) < workers and (not running or rng.random() < 0.6):
            started = rng.choice(ready)
            running[started] = _start(net.op[started], blobs)
        else:
            ended = rng.choice(sorted(running))
            _finish(net.op[ended], running.pop(ended), blobs)
            finished.add(ended)
    return {name: blobs[name] for name in results}


def _start(op: Any, blobs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Keep what the op will overwrite itself, and spoil its outputs."""
    own = {name: blobs[name].copy() for name in op.input if name in op.output}
    for name in op.output:
        if op.type != "Free":
            blobs[name] = np.full(3, np.nan, np.float32)
    return own


def _finish(op: Any, own: dict[str, np.ndarray], blobs: dict[str, np.ndarray]) -> None:
    if op.type == "Free":
        blobs.pop(op.output[0])
        return
    read = [own.get(name, blobs.get(name, np.zeros(0, np.float32))).copy() for name in op.input]
    try:
        written = run_op(op, read, op.type)
    except Exception:  # what it reads was spoilt: so is what it writes
        written = [np.full(1, np.nan, np.float32)] * len(op.output)
    blobs.update(zip(op.output, written, strict=True))


def run_one_by_one(net: Any, inputs: Arrays, results: Iterable[str]) -> dict[str, np.ndarray]:
    """Run a net in its order with one worker."""
    chain = [range(op) for op in range(len(net.op))]
    return run_dag(net, inputs, results, chain, 1, 0)


def same_bits(one: Arrays, other: Arrays) -> bool:
    """Whether the same blobs hold the same bits."""
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape and one[name].tobytes() == other[name].tobytes() for name in one
    )
