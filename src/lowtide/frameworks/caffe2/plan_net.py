"""Plan a net for runtimes with and without addresses."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.caffe2.known import Known
from lowtide.frameworks.caffe2.model import Caffe2Model
from lowtide.frameworks.caffe2.nets.load import NetSource, in_kind_of
from lowtide.frameworks.caffe2.nets.named import named_net, reorder_ops
from lowtide.frameworks.caffe2.nets.renaming import rename_net
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.slots import InterferenceSharing, share_by_interference

_WORK_LIMIT = 500_000
_MOST_OPS_SEARCHED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPlan:
    """The best plans found for a net. All figures exclude parameters."""

    net: Any
    """In its best order for slots, with renamed blobs."""
    order: tuple[int, ...]
    """Ops of the given net, in the order of `net`."""
    blob_assignments: Mapping[str, str]
    """The new name of every blob that shares."""
    blob_bytes: int
    """Bytes of all blobs, as Caffe2 keeps them."""
    memonger_bytes: int
    """Bytes of memonger's default slots."""
    slot_bytes: int
    slots_optimal: bool
    """Whether no slots for these live ranges are smaller."""
    peak_bytes: int
    """Peak in the best order, if blobs are freed after their last use."""
    arena_bytes: int
    lower_bound_bytes: int
    """No order needs less."""
    offsets: Mapping[str, int]
    """By blob; "blob#2" is the second buffer of a blob that is written again."""
    result: Result
    """The plan behind the offsets."""

    @property
    def saved_by_offsets_bytes(self) -> int:
        """Bytes saved over the slots."""
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
    """Plan a net that runs one op at a time: its order, slots, and offsets.

    `sizes` gives bytes by blob, or at least the shapes of outer blobs; `static_blobs` never share. Other
    arguments and errors are those of `Caffe2Model`. Slots are the best of four orders: least peak, program
    order, and memonger's two. Results are verified.
    """
    model = Caffe2Model(net, dims, shapes=sizes, init_net=init_net, parameters=parameters)
    result = plan_best_form(model, PlanSettings(scheduler="search", effort=effort))
    single, blob_bytes = model.in_single_assignment()
    named = named_net(single, {blob: 0 if blob in model.parameters else size for blob, size in blob_bytes.items()})
    never_share = tuple(static_blobs)
    memonger = share_by_interference(named, never_share)
    best = _best_slots(named, never_share, [result.plan.order().tolist(), "topological", "longest-path"])
    shared = copy.deepcopy(single)
    reorder_ops(shared, best.order)
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
    n_ops = len(net.ops)
    searched = [orders[0]] if n_ops > _MOST_OPS_SEARCHED else [orders[0], list(range(n_ops)), *orders[1:]]
    found = [
        share_by_interference(net, never_share, order=order, algorithm="optimal", work_limit=_WORK_LIMIT)
        for order in searched
    ]
    return min(found, key=lambda sharing: sharing.shared.statistics.bytes_after)
