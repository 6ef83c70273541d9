"""NetDefs as nets over named blobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import nets_run_by
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp

SIMPLE_TYPES = ("", "simple")
_ACROSS_DEVICES = ("CopyCPUToGPU", "CopyGPUToCPU", "CopyToCPU", "CopyFromCPUInput")


def named_net(net: Any, sizes: Mapping[str, int] | None = None) -> NamedNet:
    """Return a NetDef as a net over named blobs; `sizes` are in bytes.

    Control inputs become `after` edges. Outputs of recurrent ops become external, because they share storage already.
    """
    return NamedNet(
        ops=named_ops(net),
        external_inputs=tuple(dict.fromkeys(net.external_input)),
        external_outputs=tuple(
            dict.fromkeys((*net.external_output, *(blob for op in net.op for blob in rows_of_states(op))))
        ),
        sizes={blob: int(size) for blob, size in (sizes or {}).items()},
        blob_devices=_copied_blob_devices(net),
    )


def named_ops(net: Any) -> tuple[NamedOp, ...]:
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


def rows_of_states(op: Any) -> list[str]:
    return list(op.output) if op.type == "RecurrentNetwork" else []


def device_of(op: Any, net: Any) -> str:
    for option in (op.device_option, net.device_option):
        if option.device_type or option.device_id or option.node_name:
            return f"{option.node_name}:{option.device_type}:{option.device_id}".lstrip(":")
    return "cpu"


def _copied_blob_devices(net: Any) -> dict[str, str]:
    result: dict[str, str] = {}
    for op in net.op:
        if op.type in _ACROSS_DEVICES:
            here = device_of(op, net) or "gpu"
            result.update(dict.fromkeys(op.output, here if op.type in ("CopyCPUToGPU", "CopyFromCPUInput") else "cpu"))
            result.update(dict.fromkeys(op.input, "cpu" if op.type == "CopyCPUToGPU" else here))
    return result


def reorder_ops(net: Any, order: Sequence[int]) -> None:
    ops = [net.op[position] for position in order]
    del net.op[:]
    net.op.extend(ops)
