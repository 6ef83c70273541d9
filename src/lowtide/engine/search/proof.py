"""Proofs of lower bounds."""

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
from lowtide.engine.search.proof_of_cost import CostProof

_Bytes = Annotated[int, msgspec.Meta(ge=0)]
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Need(msgspec.Struct, frozen=True, array_like=True, tag="need", forbid_unknown_fields=True):
    """A dependency: `op`, one of both, exceeds the budget if `later` runs before `earlier`."""

    op: _Id
    earlier: _Id
    later: _Id


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over", forbid_unknown_fields=True):
    """The op exceeds the budget; ends a case."""

    op: _Id


class Cycle(msgspec.Struct, frozen=True, array_like=True, tag="cycle", forbid_unknown_fields=True):
    """The dependencies form a cycle; ends a case."""


class Either(msgspec.Struct, frozen=True, array_like=True, tag="either", forbid_unknown_fields=True):
    """A case with `one` before `other`; then the opposite."""

    one: _Id
    other: _Id


class First(msgspec.Struct, frozen=True, array_like=True, tag="first", forbid_unknown_fields=True):
    """Ops that may run next, in this order, without loss of generality.

    They fit, and no closed set between the states before and after them has fewer live bytes than the latter.
    """

    ops: tuple[_Id, ...]


class Last(msgspec.Struct, frozen=True, array_like=True, tag="last", forbid_unknown_fields=True):
    """Ops that may run right before the fixed last ops, the last op first, without loss of generality.

    They fit, and no closed set between the states before and after them has fewer live bytes than the former. They read
    no buffer that another remaining op could write in place.
    """

    ops: tuple[_Id, ...]


class Next(msgspec.Struct, frozen=True, array_like=True, tag="next", forbid_unknown_fields=True):
    """Cases: each of these ops runs next. No other fits there."""

    ops: tuple[_Id, ...]


class Previous(msgspec.Struct, frozen=True, array_like=True, tag="previous", forbid_unknown_fields=True):
    """Cases: each of these ops runs before the fixed last ops. No other fits there."""

    ops: tuple[_Id, ...]


Line = Need | Over | Cycle | Either | First | Last | Next | Previous
"""A log line, valid under all earlier lines except those of ended cases."""


class RefutedBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget for one memory space that no order meets."""

    budget_bytes: _Bytes
    at_least_bytes: _Bytes
    log: tuple[Line, ...] = ()
    """Steps that show the bound, if any."""


class Moves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sources: tuple[_Id, ...]
    targets: tuple[_Id, ...]
    bytes: tuple[_Bytes, ...]


class CutFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maximum flow, see `least_by_flow`."""

    uses: Moves
    """From buffers to ops that must precede their free; the op itself represents the end."""
    dependencies: Moves


class SpaceProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The proof for one memory space, without persistent buffers."""

    space: str
    bound_bytes: _Bytes
    op: _Id | None
    """The op that needs `cut_bytes` in any order; None for inputs and outputs."""
    before: tuple[_Id, ...]
    """Closed set before `op` for which it needs least, ascending."""
    cut_bytes: _Bytes
    flow: CutFlow | None = None
    """Shows that `op` never needs less."""
    tree_bytes: _Bytes | None
    """The optimal peak of a tree or series-parallel graph."""
    refuted: tuple[RefutedBudget, ...]
    """In the order of refutation."""


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lower bounds for all of a graph's memory spaces; see `check_proof`."""

    lowtide_proof: Literal[1] = 1
    graph: str
    in_place: bool
    """Whether optional in-place pairs were allowed."""
    spaces: tuple[SpaceProof, ...]
    """Empty if only a cost is proven."""
    cost: CostProof | None = None
    """Shows a lower bound of the extra cost of recomputation."""
    callees: dict[str, "Proof"] = {}
    """Proofs of all graphs called directly or indirectly, without callees of their own."""

    @property
    def bound_bytes(self) -> Mapping[str, int]:
        return {space.space: space.bound_bytes for space in self.spaces}


def prove(
    problem: Problem, cuts: Sequence[LowerBound], refuted: Sequence[FitOutcome] = (), *, tree_bytes: int | None = None
) -> Proof:
    """Return the proof of a problem's bounds. O(n), plus the bounds of every callee."""
    spaces = tuple(_space_proof(position, cut, refuted, tree_bytes) for position, cut in enumerate(cuts))
    in_place, bounds, callees = problem.in_place, CalleeBounds(in_place=problem.in_place), dict[str, Proof]()
    for name, callee in called_graphs(problem.graph).items():
        cuts_there = tuple(_space_proof(position, cut, (), None) for position, cut in enumerate(bounds.of(callee)))
        callees[name] = Proof(graph=callee.fingerprint, in_place=in_place, spaces=cuts_there)
    return Proof(graph=problem.graph.fingerprint, in_place=in_place, spaces=spaces, callees=callees)


def called_graphs(graph: Graph) -> dict[str, Graph]:
    """Return all graphs called directly or indirectly, by name."""
    found: dict[str, Graph] = {}
    waiting = [(name, graph) for name in reversed(graph.called)]
    while waiting:
        name, caller = waiting.pop()
        if name not in found:
            callee = found[name] = caller.subgraphs[name]
            waiting += [(inner, callee) for inner in reversed(callee.called)]
    return found


def _space_proof(position: int, cut: LowerBound, refuted: Sequence[FitOutcome], tree_bytes: int | None) -> SpaceProof:
    budgets = tuple(
        RefutedBudget(budget_bytes=outcome.budget[position], at_least_bytes=outcome.next_budget[position])
        for outcome in refuted
        if outcome.limited_space == position
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
    """Write a proof as JSON, gzipped for .gz; raises UsageError if the path is not writable."""
    write_bytes(path, msgspec.json.encode(proof))


def read_proof_file(path: Path) -> Proof:
    """Read a proof without checking its claims; raises as `read_document`."""
    return read_document(path, Proof, "not a proof of lowtide")
