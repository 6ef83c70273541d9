"""The proof of a bound on the extra cost, as a document."""

from typing import Annotated

import msgspec

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Name = tuple[str | int, ...]
"""The kind of a row or a column and its indices, see `plain_reruns`."""


class SplitCase(msgspec.Struct, frozen=True, array_like=True, tag="split", forbid_unknown_fields=True):
    """Two cases: a column is at most `at`; then at least `at` + 1."""

    column: _Id
    at: int


class ClosedCase(msgspec.Struct, frozen=True, array_like=True, tag="closed", forbid_unknown_fields=True):
    """The end of a case, by a multiplier for each of some rows.

    The combined row bounds the cost or, if `is_infeasible`, has no solution between the columns' bounds.
    """

    is_infeasible: bool
    rows: tuple[_Id, ...]
    duals: tuple[float, ...]


Case = SplitCase | ClosedCase


class CostProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lower bound on the extra cost of all plans within a budget, with first runs in one order.

    With `seconds`, it covers plans with copies: the cost is a slow-down, with memory counted at one place.
    """

    space: str
    budget_bytes: Annotated[int, msgspec.Meta(ge=0)]
    order: tuple[_Id, ...]
    costs: tuple[float, ...]
    """Cost of recomputing each op."""
    seconds: tuple[float, ...] = ()
    """Run times; empty without copies to the host."""
    places: tuple[_Id, ...]
    """Ascending places of the order where memory is counted."""
    at_least: float | None
    """The bound; None if no plan fits."""
    rows: tuple[Name, ...]
    """Names of the rows that cases use by index."""
    columns: tuple[Name, ...]
    """Names of the columns that splits use by index."""
    cases: tuple[Case, ...]
    """In depth-first order, each split before its two cases."""
