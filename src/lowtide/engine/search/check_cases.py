"""Recheck the least cost of an integer program over cases, in exact arithmetic.

Multipliers of rows bound the cost in a box: the cost less the combined row is separable, so its least value is a sum
over columns. Source: Neumaier and Shcherbina (2004).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from lowtide.engine.search.proof_of_cost import Case, ClosedCase, Name, SplitCase

Exact = int | Fraction


@dataclass(frozen=True, slots=True)
class ExactRow:
    """A row of an integer program; None for an infinite side."""

    terms: Mapping[Name, Exact]
    lower: Exact | None
    upper: Exact | None


@dataclass(frozen=True, slots=True)
class ExactColumn:
    """A column of an integer program."""

    cost: Exact
    lower: Exact
    upper: Exact
    is_integer: bool = True


class ExactProgram(Protocol):
    """Rows and columns by name. Both raise KeyError for unknown names."""

    @property
    def counted(self) -> Collection[Name]:
        """Columns that count without a multiplier. Others cost at least 0 in every solution."""
        ...

    def row(self, name: Name) -> ExactRow: ...
    def column(self, name: Name) -> ExactColumn: ...


class CaseError(Exception):
    """Raised if cases do not cover all solutions or show nothing."""


def least_cost(
    program: ExactProgram, rows: Sequence[Name], columns: Sequence[Name], cases: Sequence[Case]
) -> Fraction | None:
    """Return a lower bound on the cost of all integer solutions, None if there are none.

    Raises CaseError for incomplete cases and unknown rows or columns. O(terms of the rows used), on exact numbers.
    """
    checker = _Checker(program, rows, columns)
    least: Fraction | None = None
    waiting: list[dict[Name, tuple[Exact, Exact]]] = [{}]
    for case in cases:
        if not waiting:
            raise CaseError("a case follows the last one")
        box = waiting.pop()
        if isinstance(case, SplitCase):
            waiting += checker.split(case, box)
        elif (cost := checker.close(case, box)) is not None:
            least = cost if least is None else min(least, cost)
    if waiting:
        raise CaseError("a case is missing")
    return least


class _Checker:
    def __init__(self, program: ExactProgram, rows: Sequence[Name], columns: Sequence[Name]) -> None:
        self._program, self._row_names, self._column_names = program, rows, columns
        self._rows: dict[Name, ExactRow] = {}
        self._columns: dict[Name, ExactColumn] = {}

    def _row(self, index: int) -> ExactRow:
        try:
            name = self._row_names[index]
            if name not in self._rows:
                self._rows[name] = self._program.row(name)
        except (LookupError, TypeError, ValueError) as error:
            raise CaseError(f"row {index} is unknown") from error
        return self._rows[name]

    def _column(self, name: Name) -> ExactColumn:
        if name not in self._columns:
            try:
                self._columns[name] = self._program.column(name)
            except (LookupError, TypeError, ValueError) as error:
                raise CaseError(f"column {name} is unknown") from error
        return self._columns[name]

    def split(self, case: SplitCase, box: dict[Name, tuple[Exact, Exact]]) -> list[dict[Name, tuple[Exact, Exact]]]:
        if case.column >= len(self._column_names):
            raise CaseError(f"column {case.column} is unknown")
        name = self._column_names[case.column]
        column = self._column(name)
        if not column.is_integer:
            raise CaseError(f"column {name} is split, but takes values between integers")
        lower, upper = box.get(name, (column.lower, column.upper))
        below, above = min(upper, case.at), max(lower, case.at + 1)
        return [{**box, name: (above, upper)}, {**box, name: (lower, below)}]

    def close(self, case: ClosedCase, box: Mapping[Name, tuple[Exact, Exact]]) -> Fraction | None:
        if len(case.rows) != len(case.duals):
            raise CaseError("a case has as many rows as multipliers")
        if any(lower > upper for lower, upper in box.values()):
            return None
        exact = [Fraction(dual) for dual in case.duals]
        scale = max([dual.denominator for dual in exact], default=1)  # a power of two
        total: Exact = 0
        combined: dict[Name, Exact] = dict.fromkeys([*box, *self._program.counted], 0)
        for index, dual in zip(case.rows, exact, strict=True):
            row, times = self._row(index), int(dual * scale)
            side = row.lower if times > 0 else row.upper
            if times and side is not None:
                total += times * side
                for name, value in row.terms.items():
                    combined[name] = combined.get(name, 0) + times * value
        for name, times in combined.items():
            column = self._column(name)
            lower, upper = box.get(name, (column.lower, column.upper))
            left = -times if case.is_infeasible else column.cost * scale - times
            total += min(left * lower, left * upper)
        if not case.is_infeasible:
            return Fraction(total) / scale
        if total <= 0:
            raise CaseError("a case without a solution is not shown to have none")
        return None
