"""Ranks that run collectives together must plan the same graph: a plan is a function of it alone.

Ranks compare fingerprints through the key-value store that the process group was set up with, not by a collective. If a
rank compiles a graph that the others do not compile (again), it must not wait in a collective that they never join. It
waits for them for a while and then goes on, with a warning.
"""

import hashlib
import warnings
from collections import Counter
from datetime import timedelta

from torch.fx import GraphModule

from lowtide.core.errors import FingerprintError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.internals.distributed import Rendezvous, compilation, ranks_of, rendezvous
from lowtide.frameworks.torch.internals.operators import overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name

PATIENCE = timedelta(minutes=2)
"""How long a rank waits for what the others compile; they capture the same program at the same time."""

_asked: Counter[str] = Counter()


def partners(module: GraphModule, same_on_all_ranks: bool | None) -> tuple[Rendezvous, list[int]] | None:
    """Return the ranks that must plan the same as this one, without itself; None where there are none.

    They are those that the graph's collectives wait for; all there are, if `same_on_all_ranks` is True; none, if it is
    False. Ranks of another pipeline stage, or another replica that only exchanges gradients, may compile otherwise.
    """
    meeting = None if same_on_all_ranks is False else rendezvous()
    if meeting is None:
        return None
    everyone = range(meeting.size) if same_on_all_ranks else ranks_of(_groups_in(module))
    others = [rank for rank in everyone if rank != meeting.rank]
    return (meeting, others) if others else None


def require_agreement(
    graph: Graph, settings: str, meeting: Rendezvous, others: list[int], patience: timedelta = PATIENCE
) -> None:
    """Check that other ranks are about to plan the same graph, with the same of all else that its plan depends on.

    Raises FingerprintError, on every rank, naming the ranks that differ.
    """
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


def require_one_order(
    module: GraphModule, graph: Graph, plan: Plan, same_on_all_ranks: bool | None = None, patience: timedelta = PATIENCE
) -> None:
    """Check that all ranks are about to run collectives in one order, where the plan runs any of them again.

    Raises FingerprintError, on every rank, for an order that differs, and where a rank says nothing of its own.
    """
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
    """Return the ranks that say something else under a name, counted by how often it was asked; and the silent ones."""
    _asked[name] += 1
    key = f"{name}/{_asked[name]}"
    meeting.publish(key, mine)
    theirs = meeting.collect(key, others, patience)
    differing = [rank for rank, found in theirs.items() if found not in (None, mine)]
    return differing, [rank for rank, found in theirs.items() if found is None]


def _groups_in(module: GraphModule) -> list[str]:
    """Return the names of the process groups that a graph's collectives run in."""
    calls = [node for node in module.graph.nodes if overload_of(node.target) is not None]
    return list(
        dict.fromkeys(str(given["group_name"]) for given in map(arguments_by_name, calls) if "group_name" in given)
    )


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
