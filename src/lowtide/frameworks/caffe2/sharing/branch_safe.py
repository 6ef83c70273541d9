"""Branch-safe recycling: sharing that stays right when an executor runs independent branches at once."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.branch_walk import BranchWalk
from lowtide.frameworks.caffe2.sharing.dependences import ancestors, follow_one_another
from lowtide.frameworks.caffe2.sharing.memonger_tokens import token_renames
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, blobs_by_name, members_of, share_by
from lowtide.frameworks.caffe2.sharing.verify_sharing import is_same_but_for_names, verify_equality, verify_in_place


def share_branch_safe(
    net: NamedNet, heads: Collection[str], ops: Collection[OpId], shareable: Collection[str], scope: str
) -> SharedNet:
    """Let the shareable blobs of some ops take over one another's storage, whatever runs in parallel.

    The walk is depth first, from the ops that read the heads and then from all other roots. It enters an op once all
    that the op waits for was seen. A slot is free after the last reader of its blob. An output seen for the first time
    takes a free slot whose every touch comes before this op in all executions: so of two branches only the first finds
    it. Where sizes are known, it takes the smallest free slot that suffices, else the largest; without sizes, the one
    shared most. The same walk also joins the slots that memonger itself would fill, where those are right; of the two
    results the one with fewer bytes is taken, of equal ones and without sizes the joined slots. Slots are named
    `<scope>__m<k>_shared`, or keep the name of a blob that no op of `ops` wrote. External inputs and outputs, blobs
    that no op writes, and blobs of different devices never share. The result is verified.

    Source: Caffe2 memonger, compute_blob_recycling_for_dag; see `token_renames` for the original. Mended: the original
    tells branches by tokens, which ignore readers outside `ops` and second writers; ancestors are exact. It stops at
    ops without inputs, and overwrites external outputs. Complexity: O(n e / 64 + n * free slots) time, n * n / 8 bytes.
    Guarantees: never more bytes than memonger where its result is right, whatever the sizes.
    """
    return share_from(net, heads, ops, shareable, scope, token_renames(net, heads, ops, shareable))


def share_from(
    net: NamedNet,
    heads: Collection[str],
    ops: Collection[OpId],
    shareable: Collection[str],
    scope: str,
    theirs: Mapping[str, str] | None,
) -> SharedNet:
    """Do what `share_branch_safe` does, with `theirs` for what memonger would make of the net, right or wrong."""
    before = ancestors(net)
    may_share = {blob for writes in net.writes for blob in writes}.intersection(shareable) - net.externals
    found: list[list[list[str]]] = []
    if theirs and _is_right(net, theirs, may_share, before):
        found.append(members_of(BranchWalk(net, heads, ops, may_share, before, theirs).slots(), theirs))
    if net.sizes or not found:
        found.append(BranchWalk(net, heads, ops, may_share, before, {}).slots())
    produced = {blob for op in ops for blob in net.writes[op]}
    named = [_named(net, slots, produced, scope) for slots in found]
    shared = min(named, key=lambda shared: shared.statistics.bytes_after)
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    return shared


def _is_right(net: NamedNet, renames: Mapping[str, str], may_share: Collection[str], before: Sequence[int]) -> bool:
    """Whether blobs may have one name, whatever runs in parallel."""
    slots = blobs_by_name(renames).values()
    if any(blob not in may_share or net.devices[blob] != net.devices[slot[0]] for slot in slots for blob in slot):
        return False
    return follow_one_another(net, slots, before) and is_same_but_for_names(net, share_by(net, renames).net)


def _named(net: NamedNet, slots: Iterable[Sequence[str]], produced: Collection[str], scope: str) -> SharedNet:
    renames: dict[str, str] = {}
    names = _free_names(net, scope)
    for slot in slots:
        if len(slot) > 1:
            name = next(names) if slot[0] in produced else slot[0]
            renames.update(dict.fromkeys(slot, name))
    return share_by(net, renames)


def _free_names(net: NamedNet, scope: str) -> Iterator[str]:
    taken = {*net.blobs, *net.inner_reads, *net.inner_writes, *net.external_outputs}
    return (name for name in (f"{scope}__m{number}_shared" for number in count()) if name not in taken)
