"""Lower bounds with a class of plans and evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Figure = Literal["peak", "arena", "extra cost"]
"""Bytes without or with addresses, or the cost of recomputed runs and stalls."""
PlanClass = Literal["placements", "orders", "reruns", "copies", "reruns of one order", "copies of one order"]
"""A class of plans.

- placements: addresses for the buffers of this plan
- orders: all orders
- reruns: with any recomputation; for a cost, within the budget
- copies: with any recomputation and copies to the host
- reruns of one order, copies of one order: within the budget, with first runs in one base order"""
Evidence = Literal["cut", "tree", "search", "needs", "packing", "duals", "solver"]
"""The evidence for a claim.

- cut: the bytes that an op needs in any order
- tree: the lowest peak of a tree or series-parallel graph
- search: a search over all orders or sequences of runs
- needs: the bytes that an op touches and allocates, or that its operands need
- packing: a search over placements
- duals: multipliers of linear programs over the cases of a search, evaluated in safe arithmetic
- solver: the word of a solver, not proven; only in plan files of earlier versions"""

_EVIDENCE: Mapping[tuple[Figure, PlanClass], frozenset[Evidence]] = {
    ("peak", "orders"): frozenset({"cut", "tree", "search"}),
    ("peak", "reruns"): frozenset({"needs", "search"}),
    ("peak", "copies"): frozenset({"needs", "search"}),
    ("arena", "placements"): frozenset({"packing"}),
    ("extra cost", "reruns"): frozenset({"search"}),
    ("extra cost", "reruns of one order"): frozenset({"search", "duals", "solver"}),
    ("extra cost", "copies of one order"): frozenset({"duals", "solver"}),
}
_OF_ONE_ORDER: frozenset[PlanClass] = frozenset({"reruns of one order", "copies of one order"})
_WIDER: Mapping[PlanClass, int] = {"orders": 0, "reruns": 1, "copies": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lower bound for all plans of a class."""

    figure: Figure
    space: str | None
    """None for costs."""
    over: PlanClass
    at_least: float
    """Bytes without persistent buffers, or cost."""
    in_place: bool
    """Whether plans may use optional in-place pairs."""
    in_chunks: bool
    """Whether the program is in chunks."""
    shown_by: Evidence
    base_order: str | None = None

    @property
    def makes_sense(self) -> bool:
        """Whether the fields are a valid combination."""
        return (
            self.shown_by in _EVIDENCE.get((self.figure, self.over), frozenset())
            and (self.space is None) == (self.figure == "extra cost")
            and (self.base_order is not None) == (self.over in _OF_ONE_ORDER)
        )

    @property
    def sentence(self) -> str:
        """The claim without its figure."""
        program = "the program in chunks" if self.in_chunks else "the unmodified program"
        pairs = "" if self.in_place else " without in-place pairs"
        match self.over:
            case "placements":
                return "no placement of this plan's buffers needs less"
            case "orders":
                return f"no order{pairs} of {program} needs less"
            case "reruns" if self.figure == "extra cost":
                return f"no plan{pairs} for {program} within the budget costs less, in any order and recomputation"
            case "reruns":
                return f"no plan{pairs} for {program}, even with recomputation, needs less"
            case "copies":
                return f"no plan{pairs} for {program}, even with recomputation and copies except of inputs, needs less"
            case "reruns of one order" | "copies of one order":
                copies = ", with or without copies" if self.over == "copies of one order" else ""
                return (
                    f"no plan{pairs} for {program} within the budget costs less with first runs in order "
                    f"{self.base_order}{copies}"
                )

    def holds_for(self, *, reruns: bool, copies: bool, pairs: bool) -> bool:
        """Return whether the class includes such plans."""
        if self.over not in _WIDER:
            return True
        return _WIDER[self.over] >= (2 if copies else 1 if reruns else 0) and (self.in_place or not pairs)


def strongest(claims: Iterable[Claim], figure: Figure = "peak") -> dict[str, int]:
    """Return the largest bound of a figure by memory space name."""
    most: dict[str, int] = {}
    for claim in claims:
        if claim.figure == figure and claim.space is not None:
            most[claim.space] = max(most.get(claim.space, 0), int(claim.at_least))
    return most
