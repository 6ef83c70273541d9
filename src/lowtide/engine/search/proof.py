"""x."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from lowtide.core.documents import read_document
from lowtide.core.files import write_bytes
from lowtide.engine.analysis.lower_bounds import CalleeBounds, LowerBound
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.search.fit import FitOutcome

_Bytes = Annotated[int, msgspec.Meta(ge=0)]


_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Need(msgspec.Struct, frozen=True, array_like=True, tag="need", forbid_unknown_fields=True):
    """A dependency: `op`, one of the two ops, needs more than the budget if `later` runs before `earlier`."""

    op: _Id
    earlier: _Id
    later: _Id


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over", forbid_unknown_fields=True):
    """The op needs more than the budget; that ends a case."""

    op: _Id


class Cycle(msgspec.Struct, frozen=True, array_like=True, tag="cycle", forbid_unknown_fields=True):
    """The dependencies close a cycle; that ends a case."""


class Either(msgspec.Struct, frozen=True, array_like=True, tag="either", forbid_unknown_fields=True):
    """The case that `one` runs before `other` follows; where it ends, the opposite one does."""

    one: _Id
    other: _Id


class First(msgspec.Struct, frozen=True, array_like=True, tag="first", forbid_unknown_fields=True):
    """Some ops that may run in turn, next after what runs first until here, in whatever order follows.

    They fit, and no closed set between the one before and the one after them has fewer live bytes than the latter.
    """

    ops: tuple[_Id, ...]


class Last(msgspec.Struct, frozen=True, array_like=True, tag="last", forbid_unknown_fields=True):
    """Some ops that may run right before what runs last until here, the last of them first, whatever precedes them.

    They fit, no closed set between the one before and the one after them has fewer live bytes than the former, and none
    of them reads what another op that is left could write its result into.
    """

    ops: tuple[_Id, ...]


class Next(msgspec.Struct, frozen=True, array_like=True, tag="next", forbid_unknown_fields=True):
    """Cases: each of some ops runs next after what runs first; where one case ends, the following one does.

    No other op that can run next fits.
    """

    ops: tuple[_Id, ...]


class Previous(msgspec.Struct, frozen=True, array_like=True, tag="previous", forbid_unknown_fields=True):
    """Cases: each of some ops runs right before what runs last; where one case ends, the following one does.

    No other op that can run there fits.
    """

    ops: tuple[_Id, ...]


Line = Need | Over | Cycle | Either | First | Last | Next | Previous
"""One line of a log. It holds under all lines before it, except for those of cases that have ended."""


class RefutedBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget for one memory space that exhaustive search found no order within."""

    budget_bytes: _Bytes
    at_least_bytes: _Bytes
    """The least peak that is left for any order: a figure above the budget that was met on the way."""
    log: tuple[Line, ...] = ()
    """What shows that no order needs less than `at_least_bytes`; empty where only a search does, see `check_proof`."""


class Moves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes that a flow moves, a column each."""

    sources: tuple[_Id, ...]
    targets: tuple[_Id, ...]
    bytes: tuple[_Bytes, ...]


class CutFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maximum flow that shows how much an op needs in any order; see `check_flow`."""

    uses: Moves
    """From buffers to ops that must run before the buffer goes; the op itself stands for the end of the program."""
    dependencies: Moves
    """From ops to those they wait for."""


class SpaceProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why no order has a lower peak in one memory space. Persistent buffers are left out of every figure."""

    space: str
    bound_bytes: _Bytes
    op: _Id | None
    """The op that needs `cut_bytes` while it runs, whatever the order; None: the inputs or the outputs alone do."""
    before: tuple[_Id, ...]
    """The ops, ascending, after which `op` needs least: no closed set leaves it less. Empty without an op."""
    cut_bytes: _Bytes
    flow: CutFlow | None = None
    """What shows that `op` never needs less; None where nobody asked for it, or without an op."""
    tree_bytes: _Bytes | None
    """The least peak of all orders, where the graph is a tree or series-parallel; None elsewhere."""
    refuted: tuple[RefutedBudget, ...]
    """Budgets between `cut_bytes` and the bound, in the order in which they were refuted."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bound for every memory space of a graph, with what shows that it holds; see `check_proof`."""

    lowtide_proof: Literal[1] = 1
    graph: str
    """Fingerprint of the graph."""
    in_place: bool
    """Whether optional in-place pairs were allowed."""
    spaces: tuple[SpaceProof, ...]
    callees: dict[str, "Proof"] = {}
    """Proofs for all graphs that are called, also by one another, by name: each counts with its own bound.

    All stand here, once each, however many call them; those of callees have none of their own.
    """

    @property
    def bound_bytes(self) -> Mapping[str, int]:
        """The bound of every memory space."""
        return {space.space: space.bound_bytes for space in self.spaces}


def prove(
    problem: Problem,
    cuts: Sequence[LowerBound],
    refuted: Sequence[FitOutcome] = (),
    *,
    tree_bytes: int | None = None,
) -> Proof:
    """Write down why the peak of a problem is bounded.

    `cuts` are the bounds of `lower_bounds`, one per memory space; `refuted` are budgets that exact search proved
    impossible, each limited in one memory space only; `tree_bytes` is the least peak of a graph that is a tree or
    series-parallel. O(n) beside the bounds of callees, which are found again, once each.
    """
    spaces = tuple(_space_proof(position, cut, refuted, tree_bytes) for position, cut in enumerate(cuts))
    callees: dict[str, Proof] = {}
    _prove_callees(problem.graph, problem.in_place, CalleeBounds(in_place=problem.in_place), callees)
    return Proof(graph=problem.graph.fingerprint, in_place=problem.in_place, spaces=spaces, callees=callees)


def _prove_callees(graph: Graph, in_place: bool, bounds: CalleeBounds, proofs: dict[str, Proof]) -> None:
    """Prove the bounds of all that a graph calls and what is called there, by names, which a program has once."""
    for name in graph.called:
        if name not in proofs:
            callee = graph.subgraphs[name]
            spaces = tuple(_space_proof(position, cut, (), None) for position, cut in enumerate(bounds.of(callee)))
            proofs[name] = Proof(graph=callee.fingerprint, in_place=in_place, spaces=spaces)
            _prove_callees(callee, in_place, bounds, proofs)


def _space_proof(position: int, cut: LowerBound, refuted: Sequence[FitOutcome], tree_bytes: int | None) -> SpaceProof:
    here = [outcome for outcome in refuted if outcome.limited_space == position]
    budgets = tuple(
        RefutedBudget(budget_bytes=outcome.budget[position], at_least_bytes=outcome.next_budget[position])
        for outcome in here
    )
    return SpaceProof(
        space=cut.space,
        bound_bytes=max([cut.peak_bytes, tree_bytes or 0, *(budget.at_least_bytes for budget in budgets)]),
        op=cut.op,
        before=() if cut.before is None else tuple(np.flatnonzero(cut.before).tolist()),
        cut_bytes=cut.peak_bytes,
        tree_bytes=tree_bytes,
        refuted=budgets,
    )


def write_proof_file(proof: Proof, path: Path) -> None:
    """Write a proof as JSON, gzipped where the name ends in .gz; raises UsageError when the place cannot be written."""
    write_bytes(path, msgspec.json.encode(proof))


def read_proof_file(path: Path) -> Proof:
    """Read a proof; raises what `read_document` raises. What it claims is not checked here."""
    return read_document(path, Proof, "not a proof of lowtide")
