"""memonger's sharing by interference: an order, live ranges in it, slots, new names."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.blob_ranges import BlobRange, blob_ranges
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.net_orders import chosen_order
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, share_by
from lowtide.frameworks.caffe2.sharing.slots import WORK_LIMIT, SlotAssignment, assign_slots
from lowtide.frameworks.caffe2.sharing.verify_sharing import verify_assignments, verify_equality, verify_in_place


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceSharing:
    """A net whose blobs share, and the slots behind it."""

    ordered: NamedNet
    """The net that was given, with its ops in the order of the shared one."""
    shared: SharedNet
    order: tuple[OpId, ...]
    """The ops of the net that was given, in the order of the shared one; sharing is only right in this order."""
    slots: tuple[tuple[BlobRange, ...], ...]
    """Per slot its blobs, one after the other; blobs that never share come last, alone."""
    optimal: bool
    """Whether no slots of these ranges are smaller together."""


def share_by_interference(
    net: NamedNet,
    never_share: Collection[str] = (),
    *,
    order: str | Sequence[OpId] = "topological",
    algorithm: str = "greedy",
    work_limit: int = WORK_LIMIT,
) -> InterferenceSharing:
    """Put the ops into an order and let blobs share that are never live together in it.

    `order` is "topological", "longest-path", "longest-path-merged" or op positions in a valid order. `algorithm` is
    "greedy" or "optimal", which looks at `work_limit` slots at most. A slot has the name of its last blob.
    External inputs and outputs, the blobs in `never_share` and blobs of different devices never share. The result is
    verified.

    Source: Caffe2 memonger, optimize_interference. Mended: second writers of a blob, see `interference_edges` and
    `blob_ranges`; devices, which the original mixes. Complexity: O(e + n * slots) and the search. Raises UsageError.
    """
    places = chosen_order(net, order)
    ordered = net.reordered(places)
    alone = ordered.externals.union(never_share)
    ranges = blob_ranges(ordered)
    assignments: list[SlotAssignment] = []
    for device in dict.fromkeys(ordered.devices[blob.name] for blob in ranges):
        sharing = [blob for blob in ranges if blob.name not in alone and ordered.devices[blob.name] == device]
        assignments.append(assign_slots(sharing, algorithm, work_limit))
    slots = tuple(slot for assignment in assignments for slot in assignment.slots)
    verify_assignments(slots)
    shared = share_by(ordered, {blob.name: slot[-1].name for slot in slots if len(slot) > 1 for blob in slot})
    verify_equality(ordered, shared.net)
    verify_in_place(ordered, shared.net)
    return InterferenceSharing(
        ordered=ordered,
        shared=shared,
        order=tuple(places),
        slots=slots + tuple((blob,) for blob in ranges if blob.name in alone),
        optimal=all(assignment.optimal for assignment in assignments),
    )
