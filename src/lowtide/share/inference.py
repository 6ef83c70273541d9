"""memonger's sharing in nets that only run forward."""

from collections.abc import Collection

from lowtide.errors import GraphError, UnsupportedError
from lowtide.share.branch_safe import share_branch_safe
from lowtide.share.named_net import NamedNet
from lowtide.share.rename import SharedNet, share_by
from lowtide.share.verify_sharing import verify_equality, verify_in_place


def share_inference(
    net: NamedNet, input_blobs: Collection[str], scope: str = "", *, never_share: Collection[str] = ()
) -> SharedNet:
    """Let every blob share that is no external input or output, whatever runs in parallel; see `share_branch_safe`.

    The walk starts at `input_blobs`. Source: Caffe2 memonger, optimize_inference_for_dag. Raises UnsupportedError for
    a net with gradient ops, GraphError where an op reads what neither an op before it nor the caller produced.
    """
    written: set[str] = set(net.external_inputs)
    for position, (op, reads, writes) in enumerate(zip(net.ops, net.reads, net.writes, strict=True)):
        if op.is_gradient:
            raise UnsupportedError(
                f"op {position} ({op.kind}) is a gradient op, and this is for nets that only run forward; use "
                "share_gradients"
            )
        missing = [blob for blob in reads if blob not in written]
        if missing:
            raise GraphError(
                f"op {position} ({op.kind}) reads {missing[0]!r}, which no op before it writes; declare it an external "
                "input"
            )
        written.update(writes)
    shareable = set(net.blobs).difference(never_share)
    return share_branch_safe(net, input_blobs, range(len(net.ops)), shareable, scope)


def share_inference_fast(net: NamedNet, never_share: Collection[str] = ()) -> SharedNet:
    """Let blobs share in one pass over a net whose ops run one after the other, in their order. O(n + e).

    A blob takes over what was freed last on its device; sizes are not looked at. External inputs and outputs and the
    blobs in `never_share` keep their storage. Shared blobs are named `__m<k>_shared`; a net that has such names already
    comes back as it is. Source: Caffe2 memonger, optimize_inference_net. Mended: the original may
    free a blob that is written once more.
    """
    last: dict[str, int] = {}
    read = {blob for reads in net.reads for blob in reads}
    for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        last.update(dict.fromkeys((*reads, *writes), op))
    kept = net.externals.union(never_share)
    slot_of: dict[str, int] = {}
    members: list[list[str]] = []
    free: dict[str | None, list[int]] = {}
    seen: set[str] = set()
    for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        seen.update(reads)
        for blob in writes:
            if blob not in seen and blob not in kept:
                pool = free.setdefault(net.devices[blob], [])
                if not pool:
                    pool.append(len(members))
                    members.append([])
                slot_of[blob] = pool.pop()
                members[slot_of[blob]].append(blob)
            seen.add(blob)
        for blob in dict.fromkeys((*reads, *writes)):
            if blob in slot_of and blob in read and last[blob] == op:
                free.setdefault(net.devices[blob], []).append(slot_of[blob])
    names = {f"__m{number}_shared" for number in range(len(members))}
    if not names.isdisjoint(net.blobs):
        return share_by(net, {})
    shared = share_by(net, {b: f"__m{slot}_shared" for b, slot in slot_of.items() if len(members[slot]) > 1})
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    return shared
