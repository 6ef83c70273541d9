"""Names of the techniques a plan may use."""

from collections.abc import Iterable
from typing import cast

from lowtide.core.errors import UsageError, unknown

Techniques = frozenset[str]
ROUNDING = "rounding"
"""Chunks and updates on the host, which are equal up to rounding."""
TECHNIQUES = ("reorder", "share", "recompute", "offload", ROUNDING)
"""Another order, in-place pairs, recomputation, copies to another memory space and back, and `ROUNDING`."""
COST_NOTHING: Techniques = frozenset({"reorder", "share"})
NEED_BUDGET: Techniques = frozenset({"recompute", "offload"})
NOT_ON_A_CURVE: Techniques = frozenset({"offload", ROUNDING})


def checked_techniques(names: Iterable[str]) -> Techniques:
    if not isinstance(cast("object", names), Iterable):
        raise UsageError(unknown("technique", names, TECHNIQUES))
    techniques = frozenset([names] if isinstance(names, str) else names)
    others = sorted(techniques.difference(TECHNIQUES), key=str)
    if others:
        raise UsageError(unknown("technique", others[0], TECHNIQUES))
    return techniques


def listed(techniques: Techniques) -> str:
    """Return techniques as on the command line: "reorder,share", or "nothing"."""
    return ",".join(name for name in TECHNIQUES if name in techniques) or "nothing"


def listed_in_code(techniques: Techniques) -> str:
    """Return techniques as items of a Python list: "reorder", "share"."""
    return ", ".join(f'"{name}"' for name in TECHNIQUES if name in techniques)


def refuse_ignored(allowed: Iterable[str], ignored: Iterable[str], because: str, instead: str) -> None:
    for technique in sorted(set(allowed).intersection(ignored)):
        raise UsageError(f"technique {technique!r} would be ignored: {because}; {instead}, or leave it out")


def refuse_without_budget(allowed: Iterable[str]) -> None:
    refuse_ignored(allowed, NEED_BUDGET, "it trades time for a budget, and there is none", "give a budget")
