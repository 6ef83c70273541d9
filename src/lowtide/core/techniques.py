"""Names of the techniques a plan may use, and checks of such names."""

from collections.abc import Iterable
from typing import cast

from lowtide.core.errors import UsageError, unknown

Techniques = frozenset[str]
ROUNDING = "rounding"
"""Chunks with results equal up to rounding, for programs without bit-equal chunks."""
TECHNIQUES = ("reorder", "share", "recompute", "offload", ROUNDING)
"""Another order, in-place pairs, recomputation, copies to another memory space and back, and chunks that are equal up
to rounding."""
COST_NOTHING: Techniques = frozenset({"reorder", "share"})
"""Techniques that do not change the run time."""
NEED_BUDGET: Techniques = frozenset({"recompute", "offload"})
"""Techniques that trade time for memory and are used only to meet a budget."""
NOT_ON_A_CURVE: Techniques = frozenset({"offload", ROUNDING})
"""Techniques that a curve of memory and time does not use: its plans only recompute and stay bit-equal."""


def checked_techniques(names: Iterable[str]) -> Techniques:
    """Return techniques by their names; raises UsageError for an unknown name."""
    if not isinstance(cast("object", names), Iterable):
        raise UsageError(unknown("technique", names, TECHNIQUES))
    techniques = frozenset([names] if isinstance(names, str) else names)
    others = sorted(techniques.difference(TECHNIQUES), key=str)
    if others:
        raise UsageError(unknown("technique", others[0], TECHNIQUES))
    return techniques


def refuse_ignored(allowed: Iterable[str], ignored: Iterable[str], because: str, instead: str) -> None:
    """Raise UsageError if an allowed technique would be ignored, with the reason and the alternative."""
    for technique in sorted(set(allowed).intersection(ignored)):
        raise UsageError(f"technique {technique!r} would be ignored: {because}; {instead}, or leave it out")


def refuse_without_budget(allowed: Iterable[str]) -> None:
    """Raise UsageError if a technique that needs a budget is allowed without one."""
    refuse_ignored(allowed, NEED_BUDGET, "it trades time for a budget, and there is none", "give a budget")
