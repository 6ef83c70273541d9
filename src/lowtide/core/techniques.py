"""The techniques a plan may use beyond running the program as it stands, by name, and the checks of such names."""

from collections.abc import Iterable
from typing import cast

from lowtide.core.errors import UsageError
from lowtide.core.suggestions import unknown

Techniques = frozenset[str]
ROUNDING = "rounding"
"""Chunks whose results equal those of the whole to rounding, where none give its bits."""
TECHNIQUES = ("reorder", "share", "recompute", "offload", ROUNDING)
"""All of them: another order, in-place pairs, running ops again, copies to another memory space and back, and chunks
whose sums are made in another order."""
COST_NOTHING: Techniques = frozenset({"reorder", "share"})
"""Those that leave the run time as it is."""
NEED_BUDGET: Techniques = frozenset({"recompute", "offload"})
"""Those that trade time for memory, and so are used to fit a budget only."""
NOT_ON_A_CURVE: Techniques = frozenset({"offload", ROUNDING})
"""Those that a curve of memory and time has no use for: its plans run ops again, and give the program's bits."""


def checked_techniques(names: Iterable[str]) -> Techniques:
    """Return techniques by their names; raises UsageError for a name that is none."""
    if not isinstance(cast("object", names), Iterable):
        raise UsageError(unknown("technique", names, TECHNIQUES))
    techniques = frozenset([names] if isinstance(names, str) else names)
    others = sorted(techniques.difference(TECHNIQUES), key=str)
    if others:
        raise UsageError(unknown("technique", others[0], TECHNIQUES))
    return techniques


def refuse_ignored(allowed: Iterable[str], ignored: Iterable[str], because: str, instead: str) -> None:
    """Raise UsageError where a technique is allowed that would be ignored, with the reason and what to do instead."""
    for technique in sorted(set(allowed).intersection(ignored)):
        raise UsageError(f"technique {technique!r} would be ignored: {because}; {instead}, or leave it out")


def refuse_without_budget(allowed: Iterable[str]) -> None:
    """Raise UsageError where a technique is allowed that trades time for memory, though no budget asks for that."""
    refuse_ignored(allowed, NEED_BUDGET, "it trades time for a budget, and there is none", "give a budget")
