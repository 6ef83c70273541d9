"""Claims about a plan: a lower bound of a figure, the class of plans it holds for, and its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Figure = Literal["peak", "arena", "extra cost"]
"""The bounded figure: bytes without addresses, bytes with addresses, or the cost of recomputed runs and stalls."""
PlanClass = Literal["placements", "orders", "reruns", "copies", "reruns of one order", "copies of one order"]
"""The class of plans of a claim.

- placements: addresses for this plan's buffers
- orders: all orders
- reruns: all orders with any recomputation; for a cost, those within the budget
- copies: all orders with any recomputation and copies to the host
- reruns of one order, copies of one order: the last two within the budget, with first runs in one base order
"""
Evidence = Literal["cut", "tree", "search", "needs", "packing", "solver"]
"""The evidence for a claim.

- cut: the bytes that an op needs in any order
- tree: the lowest peak of a tree or series-parallel graph
- search: a search over all orders, or over all sequences of runs
- needs: the bytes that an op touches and allocates; without copies also those needed while its last operand is made
- packing: the search for placements
- solver: the bound of the solver that chose the recomputed runs
"""

_EVIDENCE: Mapping[tuple[Figure, PlanClass], frozenset[Evidence]] = {
    ("peak", "orders"): frozenset({"cut", "tree", "search"}),
    ("peak", "reruns"): frozenset({"needs", "search"}),
    ("peak", "copies"): frozenset({"needs", "search"}),
    ("arena", "placements"): frozenset({"packing"}),
    ("extra cost", "reruns"): frozenset({"search"}),
    ("extra cost", "reruns of one order"): frozenset({"solver"}),
    ("extra cost", "copies of one order"): frozenset({"solver"}),
}
"""Valid combinations of figure and class, and their possible evidence."""
_WIDER: Mapping[PlanClass, int] = {"orders": 0, "reruns": 1, "copies": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lower bound of a figure for all plans of a class."""

    figure: Figure
    space: str | None
    """The memory space; None for a cost."""
    over: PlanClass
    at_least: float
    """Bytes without persistent buffers, or cost in the unit of the ops' costs."""
    in_place: bool
    """Whether plans of the class may use optional in-place pairs."""
    in_chunks: bool
    """Whether the program is the form in chunks instead of the unmodified program."""
    shown_by: Evidence
    base_order: str | None = None
    """Name of the order of first runs, if the class has one order."""

    @property
    def makes_sense(self) -> bool:
        """Whether figure, class, evidence, space and base order are a valid combination."""
        return (
            self.shown_by in _EVIDENCE.get((self.figure, self.over), frozenset())
            and (self.space is None) == (self.figure == "extra cost")
            and (self.base_order is not None) == self.over.endswith("of one order")
        )

    @property
    def sentence(self) -> str:
        """The claim as a sentence without the figure."""
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
        """Return whether the class includes a plan with recomputed runs, copies or in-place pairs."""
        if self.over not in _WIDER:
            return True
        return _WIDER[self.over] >= (2 if copies else 1 if reruns else 0) and (self.in_place or not pairs)


def strongest(claims: Iterable[Claim], figure: Figure = "peak") -> dict[str, int]:
    """Return the largest bound of a figure in any of the claims, by memory space name."""
    most: dict[str, int] = {}
    for claim in claims:
        if claim.figure == figure and claim.space is not None:
            most[claim.space] = max(most.get(claim.space, 0), int(claim.at_least))
    return most
