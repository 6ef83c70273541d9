"""memonger's sharing in nets that only run forward, in parallel."""

from collections.abc import Collection

from lowtide.core.errors import GraphError, UnsupportedError
from lowtide.frameworks.caffe2.sharing.branch_safe import share_branch_safe
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.rename import SharedNet


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
    shareable = set(net.blobs).difference(net.externals, never_share)
    return share_branch_safe(net, input_blobs, range(len(net.ops)), shareable, scope)
