"""Agreement of ranks that run collectives together: all must plan the same graph in the same way.

Fingerprints are compared with a time limit: a collective would block forever if only one rank compiles.
"""

import hashlib
import warnings
from collections import Counter
from datetime import timedelta

from torch.fx import GraphModule

from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.internals.distributed import Rendezvous, compilation, ranks_of, rendezvous
from lowtide.frameworks.torch.internals.operators import overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name

PATIENCE = timedelta(minutes=2)

_asked: Counter[str] = Counter()


def partners(module: GraphModule, same_on_all_ranks: bool | None) -> tuple[Rendezvous, list[int]] | None:
    """Return the other ranks that must plan the same graph: by default those of its collectives."""
    meeting = None if same_on_all_ranks is False else rendezvous()
    if meeting is None:
        return None
    everyone = range(meeting.size) if same_on_all_ranks else ranks_of(_groups_in(module))
    others = [rank for rank in everyone if rank != meeting.rank]
    return (meeting, others) if others else None


def require_agreement(
    graph: Graph, settings: str, meeting: Rendezvous, others: list[int], patience: timedelta = PATIENCE
) -> None:
    """Raise FingerprintError on every rank if ranks plan differently; warn of silent ranks."""
    differing, silent = _compared(
        f"{compilation()}/{graph.name}", f"{graph.fingerprint} {settings}", meeting, others, patience
    )
    if differing:
        raise FingerprintError(
            f"rank {meeting.rank} is about to plan another {graph.name!r} than {_named(differing)}; give all ranks the "
            "same model, options, plans, and inputs of the same shapes, or set the option same_on_all_ranks to False"
        )
    if silent:
        warnings.warn(
            f"lowtide: {graph.name} is planned without comparing it: {_named(silent)} planned nothing for "
            f"{patience.total_seconds():.0f} s",
            stacklevel=2,
        )


def least_of_all_ranks(value: int, patience: timedelta = PATIENCE) -> int:
    """Return the least value of all ranks. Raises UnsupportedError if some are silent."""
    meeting = rendezvous()
    if meeting is None:
        return value
    others = [rank for rank in range(meeting.size) if rank != meeting.rank]
    theirs = _exchanged("least", str(value), meeting, others, patience)
    silent = [rank for rank, found in theirs.items() if found is None]
    if silent:
        raise UnsupportedError(
            f"rank {meeting.rank} waited for the free memory of {_named(silent)}; make the step on all ranks, or give "
            "a budget in bytes"
        )
    return min([value, *(int(found) for found in theirs.values() if found is not None)])


def require_one_order(
    module: GraphModule, graph: Graph, plan: Plan, same_on_all_ranks: bool | None = None, patience: timedelta = PATIENCE
) -> None:
    """Raise FingerprintError on every rank if recomputed collectives differ in order, or ranks are silent."""
    runs = plan.order()
    order = runs[graph.ranks[runs] > 1].tolist()
    together = partners(module, same_on_all_ranks) if len(set(order)) < len(order) else None
    if together is None:
        return
    meeting, others = together
    mine = hashlib.sha256(repr([(graph.op_names[op], graph.op_kinds[op]) for op in order]).encode()).hexdigest()
    differing, silent = _compared(f"order/{compilation()}/{graph.name}", mine, meeting, others, patience)
    if differing or silent:
        raise FingerprintError(
            f"rank {meeting.rank} is about to run the collectives of {graph.name!r} in another order than "
            f"{_named([*differing, *silent])}; give all ranks the same plan"
        )


def _compared(
    name: str, mine: str, meeting: Rendezvous, others: list[int], patience: timedelta
) -> tuple[list[int], list[int]]:
    theirs = _exchanged(name, mine, meeting, others, patience)
    differing = [rank for rank, found in theirs.items() if found not in (None, mine)]
    return differing, [rank for rank, found in theirs.items() if found is None]


def _exchanged(
    name: str, mine: str, meeting: Rendezvous, others: list[int], patience: timedelta
) -> dict[int, str | None]:
    _asked[name] += 1
    key = f"{name}/{_asked[name]}"
    meeting.publish(key, mine)
    return meeting.collect(key, others, patience)


def _groups_in(module: GraphModule) -> list[str]:
    calls = [node for node in module.graph.nodes if overload_of(node.target) is not None]
    return list(
        dict.fromkeys(str(given["group_name"]) for given in map(arguments_by_name, calls) if "group_name" in given)
    )


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
