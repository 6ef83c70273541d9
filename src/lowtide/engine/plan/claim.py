"""What is claimed of a plan: a figure, the class of plans that none of has less, and what shows it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Figure = Literal["peak", "arena", "extra cost"]
"""What is bounded: bytes without addresses, bytes with them, or the cost of what runs again and waits."""
PlanClass = Literal["placements", "orders", "reruns", "copies", "reruns of one order", "copies of one order"]
"""Over which plans the claim is made.

- placements: addresses for this plan's buffers
- orders: all orders
- reruns: all orders, whatever runs again; of a cost, those within the budget
- copies: all orders, whatever runs again or is copied to the host
- reruns of one order, copies of one order: the last two within the budget, with first runs in one base order
"""
Evidence = Literal["cut", "tree", "search", "needs", "packing", "solver"]
"""What shows the claim.

- cut: what an op needs in any order
- tree: the least peak of a tree or a series-parallel graph
- search: a search of all orders, or of all sequences of runs
- needs: what an op touches and allocates; without copies also what is there while its last operand is made
- packing: the search for placements
- solver: the bound of the solver that chose what runs again
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
"""The figures that are bounded, over which plans, and what can show that."""
_WIDER: Mapping[PlanClass, int] = {"orders": 0, "reruns": 1, "copies": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """No plan of a class has less of a figure."""

    figure: Figure
    space: str | None
    """The memory space; None for a cost."""
    over: PlanClass
    at_least: float
    """Bytes, persistent buffers not counted; or cost, in the unit of the ops' costs."""
    in_place: bool
    """Whether plans of the class may take optional in-place pairs."""
    in_chunks: bool
    """Whether the program is the one in chunks, rather than the one as it stands."""
    shown_by: Evidence
    base_order: str | None = None
    """The order of first runs, by name, where the class has one order."""

    @property
    def makes_sense(self) -> bool:
        """Whether there is such a claim: its figure over its class, shown by what it says, of a space or an order."""
        return (
            self.shown_by in _EVIDENCE.get((self.figure, self.over), frozenset())
            and (self.space is None) == (self.figure == "extra cost")
            and (self.base_order is not None) == self.over.endswith("of one order")
        )

    @property
    def sentence(self) -> str:
        """What no plan can do, for people: the class in full, the figure left out."""
        program = "the program in chunks" if self.in_chunks else "the program as it stands"
        pairs = "" if self.in_place or self.over == "placements" else ", without in-place pairs"
        match self.over:
            case "placements":
                return "no placement of this plan's buffers needs less"
            case "orders":
                return f"no order of {program} can do with less{pairs}"
            case "reruns" if self.figure == "extra cost":
                return (
                    f"no plan for {program} within the budget costs less, in any order and whatever runs again{pairs}"
                )
            case "reruns":
                return f"no plan for {program} can do with less, whatever runs again{pairs}"
            case "copies":
                what = "whatever runs again or visits the host, inputs apart"
                return f"no plan for {program} can do with less, {what}{pairs}"
            case "reruns of one order" | "copies of one order":
                copies = ", with or without copies" if self.over == "copies of one order" else ""
                return (
                    f"no plan for {program} within the budget costs less with first runs in order "
                    f"{self.base_order}{copies}{pairs}"
                )

    def holds_for(self, *, reruns: bool, copies: bool, pairs: bool) -> bool:
        """Tell whether a plan that runs ops again, copies buffers or takes in-place pairs is of the class."""
        if self.over not in _WIDER:
            return True
        return _WIDER[self.over] >= (2 if copies else 1 if reruns else 0) and (self.in_place or not pairs)


def strongest(claims: Iterable[Claim], figure: Figure = "peak") -> dict[str, int]:
    """Return, per memory space, the most bytes that any of the claims shows for a figure."""
    most: dict[str, int] = {}
    for claim in claims:
        if claim.figure == figure and claim.space is not None:
            most[claim.space] = max(most.get(claim.space, 0), int(claim.at_least))
    return most
