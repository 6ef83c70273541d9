"""Nets run op by op, recurrent ones step by step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels.dense import DENSE
from lowtide.frameworks.caffe2.running.kernels.elementwise import ELEMENTWISE
from lowtide.frameworks.caffe2.running.kernels.kernel import Array, Kernel
from lowtide.frameworks.caffe2.running.kernels.layout import LAYOUT
from lowtide.frameworks.caffe2.running.kernels.lstm import LSTM
from lowtide.frameworks.caffe2.running.kernels.windowed import WINDOWED
from lowtide.frameworks.caffe2.running.recurrent import RECURRENT
from lowtide.frameworks.caffe2.running.workspace import Workspace

KERNELS: Mapping[str, Kernel] = {**ELEMENTWISE, **DENSE, **LAYOUT, **LSTM, **WINDOWED}


def run_net(net: Any, workspace: Workspace) -> None:
    """Run the ops of a net in their order.

    `Free` ends a blob, `Alias` gives it another name; nothing else ends a blob. Raises UnsupportedError for an op
    that has no kernel here or cannot run on what it reads.
    """
    for position, op in enumerate(net.op):
        who = f"op {position} ({op.type})"
        if op.type == "Free":
            for name in op.output:
                workspace.free(name)
        elif op.type == "Alias":
            workspace.alias(op.output[0], op.input[0])
        else:
            arrays = compute(op, [workspace.read(name, who) for name in op.input], who)
            for name, array in zip(op.output, arrays, strict=True):
                workspace.write(name, array)


def compute(op: Any, inputs: list[Array], who: str) -> list[Array]:
    """Return what an op writes; raises UnsupportedError."""
    kernel = KERNELS.get(op.type)
    if kernel is None and op.type not in RECURRENT:
        raise UnsupportedError(f"{who} has no kernel here, so that the net cannot be run; leave out --measure")
    try:
        with np.errstate(all="ignore"):
            if kernel is None:
                arrays = RECURRENT[op.type](op, inputs, run_net)
            else:
                arrays = [np.asarray(array) for array in kernel(inputs, Arguments(op), len(op.output))]
    except UnsupportedError:
        raise
    except Exception as error:  # whatever NumPy finds wrong with shapes and types
        raise UnsupportedError(f"{who} cannot be run here: {type(error).__name__}: {one_line(error)}") from None
    if len(arrays) != len(op.output):
        raise UnsupportedError(f"{who} has {len(op.output)} outputs and its kernel here gives {len(arrays)}")
    return arrays
