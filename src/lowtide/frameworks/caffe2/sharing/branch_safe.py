"""Sharing that stays valid when independent branches run at once."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from lowtide.core.errors import GraphError, UnsupportedError
from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.branch_walk import BranchWalk
from lowtide.frameworks.caffe2.sharing.memonger_rules import token_renames
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.orders import ancestors, never_overlap
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, blobs_by_name, members_of, share_by
from lowtide.frameworks.caffe2.sharing.verify_sharing import differ_only_in_names, verify_equality, verify_in_place

_LAST_ACTIVATIONS = 2


def share_branch_safe(
    net: NamedNet, heads: Collection[str], ops: Collection[OpId], shareable: Collection[str], scope: str
) -> SharedNet:
    """Let the shareable blobs of some ops share storage, for any parallel execution.

    The walk starts at the readers of the heads. An output gets a slot whose users all run before it in every execution:
    the smallest that suffices, else the largest, or without sizes the most shared. Valid slots of memonger are merged
    too, and the smaller result counts. Slots are named `<scope>__m<k>_shared`, or after a blob from outside `ops`.
    External blobs, blobs without writer, and blobs of different devices never share. The result is verified.

    Source: Caffe2 memonger, compute_blob_recycling_for_dag, with ancestors instead of tokens. O(n e / 64 + n * free
    slots) time, n * n / 8 bytes. Guarantees: never more bytes than a valid result of memonger.
    """
    return _share_from(net, heads, ops, shareable, scope, token_renames(net, heads, ops, shareable))


def share_inference(
    net: NamedNet, input_blobs: Collection[str], scope: str = "", *, never_share: Collection[str] = ()
) -> SharedNet:
    """Let all blobs except external ones share, from `input_blobs` on; see `share_branch_safe`.

    Source: Caffe2 memonger, optimize_inference_for_dag. Raises UnsupportedError for gradient ops, GraphError if an op
    reads a blob before it is written.
    """
    written: set[str] = set(net.external_inputs)
    for position, (op, reads, writes) in enumerate(zip(net.ops, net.reads, net.writes, strict=True)):
        if op.is_gradient:
            raise UnsupportedError(f"op {position} ({op.kind}) is a gradient op; use share_gradients for training nets")
        missing = [blob for blob in reads if blob not in written]
        if missing:
            raise GraphError(
                f"op {position} ({op.kind}) reads {missing[0]!r}, which no op before it writes; declare it an external "
                "input"
            )
        written.update(writes)
    shareable = set(net.blobs).difference(net.externals, never_share)
    return share_branch_safe(net, input_blobs, range(len(net.ops)), shareable, scope)


def share_gradients(
    net: NamedNet,
    losses: Collection[str],
    param_grads: Collection[str],
    scope: str,
    *,
    never_share: Collection[str] = (),
    share_activations: bool = False,
) -> SharedNet:
    """Let gradients of activations share storage, from the losses on; see `share_branch_safe`.

    Gradients have `_grad` in their name and the scope (`_<scope>` if split) as prefix, and are not in `param_grads` or
    `never_share`. With `share_activations`, outputs of ops with the weight `<output>_w` may share if that saves memory,
    except for the last two, which callers often read.

    Source: Caffe2 memonger, share_grad_blobs, which omits sums of gradients over several layers.
    """
    prefix = f"{scope}/" if scope and not scope.endswith("/") else scope
    kept = {*param_grads, *never_share}
    gradients = {
        blob for blob in net.blobs if "_grad" in blob and blob.startswith((prefix, f"_{prefix}")) and blob not in kept
    }
    only_gradients = _share_with(net, losses, gradients, set(), prefix)
    if not share_activations:
        return only_gradients
    with_activations = _share_with(net, losses, gradients, set(_activations(net)) - kept, prefix)
    return min(with_activations, only_gradients, key=lambda shared: _cost(net, shared))


def _share_with(
    net: NamedNet, losses: Collection[str], gradients: Collection[str], activations: set[str], prefix: str
) -> SharedNet:
    unsplit = {blob for blob in gradients if blob.endswith("_grad")}
    memonger = token_renames(net, losses, _ops_with(net, unsplit), unsplit | activations)
    return _share_from(net, losses, _ops_with(net, gradients), activations.union(gradients), prefix, memonger)


def _ops_with(net: NamedNet, blobs: Collection[str]) -> list[OpId]:
    wanted = frozenset(blobs)
    touches = zip(net.reads, net.writes, strict=True)
    return [op for op, (reads, writes) in enumerate(touches) if not wanted.isdisjoint((*reads, *writes))]


def _activations(net: NamedNet) -> list[str]:
    found = [
        blob for op in net.ops for blob in op.outputs if f"{blob}_w" in op.inputs and blob not in net.external_outputs
    ]
    return found[:-_LAST_ACTIVATIONS]


def _cost(net: NamedNet, shared: SharedNet) -> int:
    return shared.statistics.bytes_after if net.sizes else len(shared.net.blobs)


def _share_from(
    net: NamedNet,
    heads: Collection[str],
    ops: Collection[OpId],
    shareable: Collection[str],
    scope: str,
    memonger: Mapping[str, str] | None,
) -> SharedNet:
    before = ancestors(net)
    may_share = {blob for writes in net.writes for blob in writes}.intersection(shareable) - net.externals
    found: list[list[list[str]]] = []
    if memonger and _is_valid(net, memonger, may_share, before):
        found.append(members_of(BranchWalk(net, heads, ops, may_share, before, memonger).slots(), memonger))
    if net.sizes or not found:
        found.append(BranchWalk(net, heads, ops, may_share, before, {}).slots())
    produced = {blob for op in ops for blob in net.writes[op]}
    shared = min(
        (_named(net, slots, produced, scope) for slots in found), key=lambda shared: shared.statistics.bytes_after
    )
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    return shared


def _is_valid(net: NamedNet, renames: Mapping[str, str], may_share: Collection[str], before: Sequence[int]) -> bool:
    slots = blobs_by_name(renames).values()
    if any(blob not in may_share or net.devices[blob] != net.devices[slot[0]] for slot in slots for blob in slot):
        return False
    return never_overlap(net, slots, before) and differ_only_in_names(net, share_by(net, renames).net)


def _named(net: NamedNet, slots: Iterable[Sequence[str]], produced: Collection[str], scope: str) -> SharedNet:
    renames: dict[str, str] = {}
    names = _free_names(net, scope)
    for slot in slots:
        if len(slot) > 1:
            name = next(names) if slot[0] in produced else slot[0]
            renames.update(dict.fromkeys(slot, name))
    return share_by(net, renames)


def _free_names(net: NamedNet, scope: str) -> Iterator[str]:
    used = {*net.blobs, *net.inner_reads, *net.inner_writes, *net.external_outputs}
    return (name for name in (f"{scope}__m{number}_shared" for number in count()) if name not in used)
