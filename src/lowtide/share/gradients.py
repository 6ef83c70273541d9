"""memonger's sharing of gradients."""

from collections.abc import Collection

from lowtide.share.branch_safe import share_branch_safe
from lowtide.share.named_net import NamedNet
from lowtide.share.rename import SharedNet

_LAST_ACTIVATIONS = 2


def share_gradients(
    net: NamedNet,
    losses: Collection[str],
    param_grads: Collection[str],
    scope: str,
    *,
    never_share: Collection[str] = (),
    share_activations: bool = False,
) -> SharedNet:
    """Let the gradients that layers hand on share storage, whatever runs in parallel; see `share_branch_safe`.

    A blob may share if `_grad` is in its name, it is in the scope (or split from one that is: `_<scope>...`), and it is
    neither in `param_grads` nor in `never_share`. Ops that touch such a blob take part; the walk starts at the losses.
    With `share_activations`, what an op with the weight `<its name>_w` writes may share too, except the last two, which
    are often looked at from outside. If that saves nothing, gradients alone share.

    Source: Caffe2 memonger, share_grad_blobs.
    """
    prefix = f"{scope}/" if scope and not scope.endswith("/") else scope
    kept = {*param_grads, *never_share}
    gradients = {
        blob for blob in net.blobs if "_grad" in blob and blob.startswith((prefix, f"_{prefix}")) and blob not in kept
    }
    ops = [
        op
        for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True))
        if not gradients.isdisjoint((*reads, *writes))
    ]
    alone = share_branch_safe(net, losses, ops, gradients, prefix)
    if not share_activations:
        return alone
    activations = gradients.union(_activations(net)) - kept
    together = share_branch_safe(net, losses, ops, activations, prefix)
    return min(alone, together, key=lambda shared: _cost(net, shared))


def _activations(net: NamedNet) -> list[str]:
    found = [
        blob for op in net.ops for blob in op.outputs if f"{blob}_w" in op.inputs and blob not in net.external_outputs
    ]
    return found[:-_LAST_ACTIVATIONS]


def _cost(net: NamedNet, shared: SharedNet) -> int:
    """Bytes where sizes are known, else blobs."""
    return shared.statistics.bytes_after if net.sizes else len(shared.net.blobs)
