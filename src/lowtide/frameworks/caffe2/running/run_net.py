"""Run nets and measure their blobs."""

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels import KERNELS
from lowtide.frameworks.caffe2.running.recurrent import LSTM, RECURRENT
from lowtide.frameworks.caffe2.running.windowed import WINDOWED
from lowtide.frameworks.caffe2.running.workspace import Array, Workspace
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType
from lowtide.frameworks.caffe2.sharing.rename import ALIAS, FREE

_KERNELS = {**KERNELS, **LSTM, **WINDOWED}


@dataclass(frozen=True, slots=True)
class NetRun:
    """One run of a net."""

    peak_bytes: int
    """Peak of all blobs except parameters."""
    results: Mapping[str, Array]
    """Final arrays of the requested blobs."""


def run_once(net: Any, inputs: Mapping[str, Array], results: Iterable[str], parameters: Collection[str] = ()) -> NetRun:
    """Run a net in program order in NumPy; raises UnsupportedError for an op without a kernel."""
    workspace = Workspace({name: array.copy() for name, array in inputs.items()}, parameters)
    run_net(net, workspace)
    return NetRun(workspace.peak_bytes, workspace.arrays(results))


def run_net(net: Any, workspace: Workspace) -> None:
    for position, op in enumerate(net.op):
        where = f"op {position} ({op.type})"
        if op.type == FREE:
            for name in op.output:
                workspace.free(name)
        elif op.type == ALIAS:
            workspace.alias(op.output[0], op.input[0])
        else:
            arrays = run_op(op, [workspace.read(name, where) for name in op.input], where)
            for name, array in zip(op.output, arrays, strict=True):
                workspace.write(name, array)


def run_op(op: Any, inputs: list[Array], where: str) -> list[Array]:
    kernel = _KERNELS.get(op.type)
    if kernel is None and op.type not in RECURRENT:
        raise UnsupportedError(f"{where} has no kernel here; leave out --measure")
    try:
        with np.errstate(all="ignore"):
            if kernel is None:
                arrays = RECURRENT[op.type](op, inputs, run_net)
            else:
                arrays = [np.asarray(array) for array in kernel(inputs, Arguments(op), len(op.output))]
    except UnsupportedError:
        raise
    except Exception as error:  # NumPy's, for wrong shapes and types
        raise UnsupportedError(f"{where} cannot be run here: {type(error).__name__}: {one_line(error)}") from None
    if len(arrays) != len(op.output):
        raise UnsupportedError(f"{where} has {len(op.output)} outputs, its kernel here returns {len(arrays)}")
    return arrays


def made_up_inputs(types: Mapping[str, TensorType], blobs: Iterable[str]) -> dict[str, Array]:
    """Return reproducible random arrays; raises UnsupportedError for an unknown shape."""
    inputs: dict[str, Array] = {}
    for blob in blobs:
        kind = types.get(blob)
        if kind is None:
            raise UnsupportedError(f"blob {blob!r} has no known shape; give it, or leave out --measure")
        rng = np.random.default_rng(zlib.crc32(blob.encode()))
        is_float = np.issubdtype(np.dtype(kind.dtype), np.floating)
        array = rng.standard_normal(kind.shape) if is_float else rng.integers(0, 2, kind.shape)
        inputs[blob] = array.astype(kind.dtype)
    return inputs
