"""memonger's functions from nets to nets."""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from lowtide.frameworks.caffe2.effects import check_in_place
from lowtide.frameworks.caffe2.memonger.assignments import AssignmentAlgorithm, Slot, get_updated_ranges, ranges_of
from lowtide.frameworks.caffe2.memonger.orders import InterferenceGraph, topological_sort_traversal
from lowtide.frameworks.caffe2.nets.arguments import new_message
from lowtide.frameworks.caffe2.nets.load import proto_of
from lowtide.frameworks.caffe2.nets.named import SIMPLE_TYPES, named_net, reorder_ops
from lowtide.frameworks.caffe2.nets.renaming import rename_net, rename_steps
from lowtide.frameworks.caffe2.sharing.branch_safe import share_branch_safe, share_gradients, share_inference
from lowtide.frameworks.caffe2.sharing.inference_fast import share_inference_fast
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, release_when_used
from lowtide.frameworks.caffe2.sharing.slots import share_by_interference
from lowtide.frameworks.caffe2.sharing.verify_sharing import passes, verify_equality, verify_in_place


class Optimization(NamedTuple):
    """A net that shares storage, with its slots."""

    net: Any
    assignments: list[Slot]
    """Blobs that never share come last, one per slot."""
    blob_assignments: dict[str, str]


def share_grad_blobs(
    net: Any,
    losses: Iterable[Any],
    param_grads: Iterable[Any],
    namescope: str,
    dont_share_blobs: Iterable[str] | None = None,
    share_activations: bool = False,
    blob_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Any:
    """Return a NetDef or wrapper with sharing gradients; see `share.share_gradients`."""
    proto = proto_of(net)
    sizes = {blob: prod(int(size) for size in shape) for blob, shape in (blob_shapes or {}).items()}
    shared = share_gradients(
        named_net(proto, sizes),
        _names(losses),
        _names(param_grads),
        namescope,
        never_share=_names(dont_share_blobs or ()),
        share_activations=share_activations,
    )
    return _renamed(proto, shared)


def optimize_inference_for_dag(net: Any, input_blobs: Iterable[Any], namescope: str = "") -> Any:
    """Return the net with sharing blobs; see `share.share_inference` for errors.

    Raises GraphError for an op that must run in place and does not.
    """
    proto = proto_of(net)
    check_in_place(proto)
    return _renamed(proto, share_inference(named_net(proto), _names(input_blobs), namescope))


def optimize_inference_fast(net: Any, static_blobs: Iterable[Any]) -> Any:
    """Return the net with blobs sharing in program order; see `share.share_inference_fast`.

    Nets that are not simple use `share.share_branch_safe`; memonger leaves them unchanged. Raises GraphError for an op
    that must run in place and does not.
    """
    check_in_place(net)
    named, static = named_net(net), _names(static_blobs)
    if net.type in SIMPLE_TYPES:
        return _renamed(net, share_inference_fast(named, static))
    heads, ops = named.external_inputs, range(len(named.ops))
    return _renamed(net, share_branch_safe(named, heads, ops, set(named.blobs).difference(static), ""))


def optimize_interference(
    net: Any,
    static_blobs: Collection[Any],
    ordering_function: Callable[[Any], Sequence[int]] = topological_sort_traversal,
    blob_sizes: Mapping[str, int] | None = None,
    algo: AssignmentAlgorithm = AssignmentAlgorithm.GREEDY,
) -> Optimization:
    """Return the net in another order with sharing blobs; see `share.share_by_interference`.

    `ordering_function` returns op positions for the interference graph. `static_blobs` never share.
    """
    named = named_net(net, blob_sizes)
    order = [int(position) for position in ordering_function(InterferenceGraph(net.op, named))]
    found = share_by_interference(
        named,
        _names(static_blobs),
        order=order,
        algorithm="greedy" if algo == AssignmentAlgorithm.GREEDY else "optimal",
    )
    optimized = copy.deepcopy(net)
    reorder_ops(optimized, order)
    rename_net(optimized, found.shared.renames)
    ranges = dict(get_updated_ranges(ranges_of(found.ordered, blob_sizes).items()))
    slots = [[(blob.name, ranges[blob.name]) for blob in slot] for slot in found.slots]
    return Optimization(optimized, slots, dict(found.shared.renames))


def apply_assignments(net: Any, blob_assignments: Mapping[str, str]) -> None:
    """Rename the blobs of a net and its step nets in place."""
    rename_net(net, blob_assignments)


def apply_recurrent_blob_assignments(
    op: Any, blob_assignments: Mapping[str, str], canonical_name: Callable[[str], str]
) -> None:
    """Rename blobs to their `canonical_name` in the step nets of a recurrent op."""
    rename_steps(op, {blob: canonical_name(blob) for blob in blob_assignments})


def release_blobs_when_used(
    netproto: Any, dont_free_blobs: Iterable[str], selector_fun: Callable[[str], bool] | None = None
) -> Any:
    """Return the net with a `Free` op after each blob's last use; see `share.release_when_used`."""
    released = release_when_used(named_net(netproto), _names(dont_free_blobs), selected=selector_fun)
    result = copy.deepcopy(netproto)
    ops = list(result.op)
    del result.op[:]
    place = 0
    for op in released.ops:
        own = ops[place] if place < len(ops) else None
        if own is not None and (op.kind, op.inputs, op.outputs) == (own.type, tuple(own.input), tuple(own.output)):
            result.op.append(own)
            place += 1
        else:
            result.op.append(new_message(ops[0], type=op.kind, input=list(op.inputs), output=list(op.outputs)))
    return result


def verify_graph_equality(net_a: Any, net_b: Any) -> bool:
    """Return whether two nets compute the same, op by op; see `share.verify_equality`.

    If the nets have different external blobs, all outer blobs count as equal, as in memonger.
    """
    one, other = named_net(net_a), named_net(net_b)
    if one.externals != other.externals:
        one, other = _with_one_outer_blob(one), _with_one_outer_blob(other)
    return passes(verify_equality, one, other)


def verify_inplace_blobs(net_a: Any, net_b: Any) -> bool:
    """Return whether two nets have the same op types and in-place pairs."""
    kinds = [[op.type for op in net.op] for net in (net_a, net_b)]
    return kinds[0] == kinds[1] and passes(verify_in_place, named_net(net_a), named_net(net_b))


def _with_one_outer_blob(net: NamedNet) -> NamedNet:
    written: set[str] = set()
    ops: list[NamedOp] = []
    for op in net.ops:
        ops.append(replace(op, inputs=tuple(blob if blob in written else "" for blob in op.inputs)))
        written.update(op.outputs)
    return NamedNet(ops=tuple(ops))


def _renamed(proto: Any, shared: SharedNet) -> Any:
    result = copy.deepcopy(proto)
    rename_net(result, shared.renames)
    return result


def _names(blobs: Iterable[Any]) -> list[str]:
    return [str(blob) for blob in blobs]
