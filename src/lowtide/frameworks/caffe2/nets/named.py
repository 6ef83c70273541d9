"""A net by the names of its blobs, as everything that shares storage sees it."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import nets_run_by
from lowtide.frameworks.caffe2.nets.devices import device_of
from lowtide.frameworks.caffe2.sharing import NamedNet, NamedOp

SIMPLE_TYPES = ("", "simple")
"""Types of nets whose ops run one after the other."""
_ACROSS_DEVICES = ("CopyCPUToGPU", "CopyGPUToCPU", "CopyToCPU", "CopyFromCPUInput")


def named_net(net: Any, sizes: Mapping[str, int] | None = None) -> NamedNet:
    """Return a net by names; `sizes` are in bytes.

    `net` may be any object with the fields of a NetDef. A control input makes its op wait for the last op before that
    writes the blob. What copies to or from a GPU writes on the device that its kind says. The outputs of recurrent ops
    are among the external ones, since they share storage already.
    """
    return NamedNet(
        ops=named_ops(net),
        external_inputs=tuple(dict.fromkeys(net.external_input)),
        external_outputs=tuple(
            dict.fromkeys((*net.external_output, *(blob for op in net.op for blob in in_states(op))))
        ),
        sizes={blob: int(size) for blob, size in (sizes or {}).items()},
        blob_devices=_copied(net),
    )


def named_ops(net: Any) -> tuple[NamedOp, ...]:
    """Return the ops of a net by names."""
    writers: dict[str, int] = {}
    ops: list[NamedOp] = []
    for position, op in enumerate(net.op):
        waits = sorted({writers[blob] for blob in op.control_input if blob in writers})
        ops.append(
            NamedOp(
                kind=op.type,
                name=op.engine,
                inputs=tuple(op.input),
                outputs=tuple(op.output),
                device=device_of(op, net),
                is_gradient=bool(op.is_gradient_op),
                after=tuple(waits),
                step_nets=tuple(named_net(inner) for _, inner in nets_run_by(op)),
            )
        )
        writers.update(dict.fromkeys(op.output, position))
    return tuple(ops)


def in_states(op: Any) -> list[str]:
    """Return the outputs of a recurrent op that have no storage of their own: all are rows of its states."""
    return list(op.output) if op.type == "RecurrentNetwork" else []


def _copied(net: Any) -> dict[str, str]:
    """Return the device of each blob that was copied across: the op runs on the GPU, one side of it lies elsewhere."""
    result: dict[str, str] = {}
    for op in net.op:
        if op.type in _ACROSS_DEVICES:
            here = device_of(op, net) or "gpu"
            result.update(dict.fromkeys(op.output, here if op.type in ("CopyCPUToGPU", "CopyFromCPUInput") else "cpu"))
            result.update(dict.fromkeys(op.input, "cpu" if op.type == "CopyCPUToGPU" else here))
    return result


def place_ops(net: Any, order: Sequence[int]) -> None:
    """Put the ops of a net into an order."""
    ops = [net.op[position] for position in order]
    del net.op[:]
    net.op.extend(ops)
