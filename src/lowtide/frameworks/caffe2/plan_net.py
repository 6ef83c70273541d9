"""The best of a net: an order, slots by name for runtimes without addresses, and offsets, with a bound."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.caffe2.model import Caffe2Model
from lowtide.frameworks.caffe2.nets.load import NetSource, in_kind_of
from lowtide.frameworks.caffe2.nets.named import named_net, place_ops
from lowtide.frameworks.caffe2.nets.renaming import rename_net
from lowtide.frameworks.caffe2.shapes.known import Known
from lowtide.frameworks.caffe2.sharing import InterferenceSharing, NamedNet, share_by_interference

_WORK_LIMIT = 500_000
_MOST_OPS_SEARCHED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPlan:
    """What a net can do with. All figures leave parameters out and count the net's own inputs and outputs."""

    net: Any
    """The net in the best order for slots, its blobs renamed to the slots."""
    order: tuple[int, ...]
    """The ops of the net that was given, in that order."""
    blob_assignments: Mapping[str, str]
    """The new name of every blob that shares."""
    blob_bytes: int
    """All blobs, as Caffe2 keeps them."""
    memonger_bytes: int
    """Slots as memonger fills them by default: plain order, greedy."""
    slot_bytes: int
    """The slots of `net`."""
    slots_optimal: bool
    """Whether no slots of these live ranges are smaller."""
    peak_bytes: int
    """The most that is live at once in the best order, where a runtime frees every blob after its last use."""
    arena_bytes: int
    """The same with addresses, as `offsets` has them."""
    lower_bound_bytes: int
    """No order needs less, whatever addresses."""
    offsets: Mapping[str, int]
    """Bytes from the begin of the arena by blob; the second contents of a blob that is written anew is "blob#2"."""
    result: Result
    """The plan of the order behind the offsets, to apply, save or measure."""

    @property
    def saved_by_slots_bytes(self) -> int:
        """What order search and searched slots save over memonger's slots."""
        return self.memonger_bytes - self.slot_bytes

    @property
    def saved_by_offsets_bytes(self) -> int:
        """What offsets save over the slots."""
        return self.slot_bytes - self.arena_bytes


def plan(
    net: NetSource,
    sizes: Known | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    init_net: NetSource | None = None,
    parameters: Iterable[str] = (),
    static_blobs: Iterable[str] = (),
    effort: EffortName = "fast",
) -> NetPlan:
    """Plan a net that runs op by op: the best order, slots in it, and offsets.

    `sizes` says of blobs their bytes, as memonger's `collect_blob_sizes` does, or their shapes, of those from outside
    at least; `dims`, `init_net` and `parameters` are those of `Caffe2Model`. `static_blobs` never share a name. Slots
    are searched in the order of least peak, in the given one and in memonger's two, and the smallest are taken. Every
    result is verified. Raises what `Caffe2Model` raises.
    """
    model = Caffe2Model(net, dims, shapes=sizes, init_net=init_net, parameters=parameters)
    result = plan_best_form(model, PlanSettings(scheduler="search", effort=effort))
    single, blob_bytes = model.in_single_assignment()
    named = named_net(single, {blob: 0 if blob in model.parameters else size for blob, size in blob_bytes.items()})
    never_share = tuple(static_blobs)
    memonger = share_by_interference(named, never_share)
    best = _best_slots(named, never_share, [result.plan.order().tolist(), "topological", "longest-path"])
    shared = copy.deepcopy(single)
    place_ops(shared, best.order)
    rename_net(shared, best.shared.renames)
    return NetPlan(
        net=in_kind_of(shared, net),
        order=best.order,
        blob_assignments=dict(best.shared.renames),
        blob_bytes=best.shared.statistics.bytes_before,
        memonger_bytes=memonger.shared.statistics.bytes_after,
        slot_bytes=best.shared.statistics.bytes_after,
        slots_optimal=best.optimal,
        peak_bytes=sum(result.peak_bytes.values()),
        arena_bytes=sum(result.arena_bytes.values()),
        lower_bound_bytes=sum(result.lower_bound_bytes.values()),
        offsets=model.offsets(result.plan),
        result=result,
    )


def _best_slots(
    net: NamedNet, never_share: Sequence[str], orders: Sequence[Sequence[int] | str]
) -> InterferenceSharing:
    """Return the smallest slots in any of some orders and the given one; in a large net, of the first order only."""
    n_ops = len(net.ops)
    asked = [orders[0]] if n_ops > _MOST_OPS_SEARCHED else [orders[0], list(range(n_ops)), *orders[1:]]
    found = [
        share_by_interference(net, never_share, order=order, algorithm="optimal", work_limit=_WORK_LIMIT)
        for order in asked
    ]
    return min(found, key=lambda sharing: sharing.shared.statistics.bytes_after)
