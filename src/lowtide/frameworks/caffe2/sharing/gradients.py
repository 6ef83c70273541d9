"""memonger's sharing of gradients."""

from collections.abc import Collection

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.branch_safe import share_from
from lowtide.frameworks.caffe2.sharing.memonger_tokens import token_renames
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.rename import SharedNet

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
    are often looked at from outside. If gradients alone need less, they share alone.

    Source: Caffe2 memonger, share_grad_blobs. Mended: its last versions leave out gradients whose name goes on after
    `_grad`, which are those that several layers add up to.
    """
    prefix = f"{scope}/" if scope and not scope.endswith("/") else scope
    kept = {*param_grads, *never_share}
    gradients = {
        blob for blob in net.blobs if "_grad" in blob and blob.startswith((prefix, f"_{prefix}")) and blob not in kept
    }
    alone = _share(net, losses, gradients, set(), prefix)
    if not share_activations:
        return alone
    together = _share(net, losses, gradients, set(_activations(net)) - kept, prefix)
    return min(together, alone, key=lambda shared: _cost(net, shared))


def _share(
    net: NamedNet, losses: Collection[str], gradients: Collection[str], activations: set[str], prefix: str
) -> SharedNet:
    unsplit = {blob for blob in gradients if blob.endswith("_grad")}
    theirs = token_renames(net, losses, _ops_with(net, unsplit), unsplit | activations)
    return share_from(net, losses, _ops_with(net, gradients), activations.union(gradients), prefix, theirs)


def _ops_with(net: NamedNet, blobs: Collection[str]) -> list[OpId]:
    """Return the ops that touch some blobs."""
    wanted = frozenset(blobs)
    touches = zip(net.reads, net.writes, strict=True)
    return [op for op, (reads, writes) in enumerate(touches) if not wanted.isdisjoint((*reads, *writes))]


def _activations(net: NamedNet) -> list[str]:
    found = [
        blob for op in net.ops for blob in op.outputs if f"{blob}_w" in op.inputs and blob not in net.external_outputs
    ]
    return found[:-_LAST_ACTIVATIONS]


def _cost(net: NamedNet, shared: SharedNet) -> int:
    """Bytes where sizes are known, else blobs."""
    return shared.statistics.bytes_after if net.sizes else len(shared.net.blobs)
