"""What a net really needs: the blobs that the interpreter holds at once while it runs the net op by op."""

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.caffe2.running.execute import run_net
from lowtide.frameworks.caffe2.running.kernels.kernel import Array
from lowtide.frameworks.caffe2.running.workspace import Workspace, filled
from lowtide.frameworks.caffe2.shapes.tensor_type import TensorType


@dataclass(frozen=True, slots=True)
class NetRun:
    """One run of a net."""

    peak_bytes: int
    """The most bytes that blobs held at once, parameters left out."""
    results: Mapping[str, Array]
    """What the blobs held in the end that were asked for."""


def run_once(net: Any, inputs: Mapping[str, Array], results: Iterable[str], parameters: Collection[str] = ()) -> NetRun:
    """Run a net on the CPU in the order of its ops, in NumPy, whatever its type says.

    A blob is held until an op `Free` ends it. Raises UnsupportedError for ops without a kernel here.
    """
    workspace = Workspace({name: array.copy() for name, array in inputs.items()}, parameters)
    run_net(net, workspace)
    return NetRun(workspace.peak_bytes, workspace.take(results))


def made_up_inputs(types: Mapping[str, TensorType], blobs: Iterable[str]) -> dict[str, Array]:
    """Return contents for blobs, the same every time; raises UnsupportedError where a shape is not known."""
    inputs: dict[str, Array] = {}
    for blob in blobs:
        kind = types.get(blob)
        if kind is None:
            raise UnsupportedError(
                f"blob {blob!r} has bytes and no shape, so that the net cannot be run; give its shape, or leave out "
                "--measure"
            )
        inputs[blob] = filled(kind.shape, kind.dtype, zlib.crc32(blob.encode()))
    return inputs


def equal_results(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Return whether the same blobs hold the same bits."""
    return {name: _bits(array) for name, array in one.items()} == {name: _bits(array) for name, array in other.items()}


def _bits(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()
