"""NetDefs become graphs: what is known of their blobs, the types of all of them, their ops."""

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.nets.named import named_net
from lowtide.frameworks.caffe2.reading.translate import translate
from lowtide.frameworks.caffe2.reading.translation import NetTranslation
from lowtide.frameworks.caffe2.shapes.infer import infer_types
from lowtide.frameworks.caffe2.shapes.known import Known, KnownBlobs, known_blobs, require_known
from lowtide.frameworks.caffe2.shapes.tensor_type import CAFFE2_TYPES, TensorType

_SHAPE_ARGUMENTS = ("shape_info", "qshape_info")


def known_of(net: Any, init_net: Any | None, known: Known, dims: Mapping[str, int]) -> KnownBlobs:
    """Return what is known of a net's blobs: by its init net, by itself, by the caller, and by bound dimensions.

    Raises UsageError for entries and dimensions that fit no blob.
    """
    made: dict[str, Any] = {}
    if init_net is not None:
        for op, types in zip(init_net.op, infer_types(init_net, {}), strict=True):
            made.update((name, kind) for name, kind in zip(op.output, types, strict=True) if kind is not None)
    made.update(_in_net(net))
    named = named_net(net)
    return known_blobs(made | dict(known), dims, (*named.external_inputs, *named.blobs))


def parameters_of(net: Any, init_net: Any | None, parameters: Iterable[str]) -> frozenset[str]:
    """Return the blobs of a net that are parameters: those named, and those its init net makes.

    Raises UsageError for a name that is no blob from outside the net.
    """
    named = named_net(net)
    outer = {*named.external_inputs, *(blob for reads in named.reads for blob in reads)}
    missing = sorted(set(parameters) - outer)
    if missing:
        raise UsageError(f"the net reads no blob {missing[0]!r}, which is named as a parameter; name external inputs")
    made = [blob for op in init_net.op for blob in op.output] if init_net is not None else []
    return frozenset(outer.intersection((*made, *parameters)))


def read_net_graph(net: Any, known: KnownBlobs, parameters: frozenset[str], where: str) -> NetTranslation:
    """Read a net into a graph; raises UnsupportedError where nothing is known of a blob from outside."""
    written: set[str] = set()
    named = named_net(net)
    outer: dict[str, None] = {}
    for reads, writes in zip(named.reads, named.writes, strict=True):
        outer.update(dict.fromkeys(blob for blob in reads if blob not in written))
        written.update(writes)
    require_known(outer, known, where)
    return translate(net, known, parameters, where)


def _in_net(net: Any) -> dict[str, TensorType]:
    """Return the types that a net carries itself, as Caffe2's BackendTransformerBase and the input of Glow have them.

    They are tensors without contents in arguments of the net, quantized ones apart.
    """
    arguments = [argument for argument in net.arg if argument.name.removeprefix("input_") in _SHAPE_ARGUMENTS]
    tensors = (tensor for argument in arguments for tensor in (*argument.tensors, *argument.qtensors))
    return {
        tensor.name: TensorType(tuple(tensor.dims), CAFFE2_TYPES[tensor.data_type])
        for tensor in tensors
        if tensor.data_type in CAFFE2_TYPES and min(tensor.dims, default=0) >= 0
    }
