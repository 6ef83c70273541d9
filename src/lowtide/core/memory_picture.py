"""The memory of a program as a sentence, an SVG picture, and bars."""

from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lowtide.core.notebook import html_table, printable
from lowtide.core.units import format_bytes, percent

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 632, 28, 192
_MOST_COLUMNS = 312
_ROWS = 9
_MOST_BARS = 72
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryPicture:
    """Memory of one space over runs."""

    name: str
    """Name of the program."""
    space: str
    before: NDArray[np.int64]
    """Live bytes of the unmodified program, drawn as wide as the plan."""
    after: NDArray[np.int64] | None
    """Live bytes of the plan, or None."""
    budget_bytes: int | None = None
    largest: tuple[str, ...] = ()
    """The largest tensors at the peak, with the user's module names."""

    @property
    def sentence(self) -> str:
        """Peaks, budget and largest tensors in one sentence."""
        before, after = _peak(self.before), None if self.after is None else _peak(self.after)
        text = f"{self.name} needs {format_bytes(before if after is None else after)} at its peak"
        if after is not None and after != before:
            change = f" ({percent(after / before - 1, signed=True)})" if before else ""
            text += f" instead of {format_bytes(before)}{change}"
        if self.budget_bytes is not None:
            met = "within" if (before if after is None else after) <= self.budget_bytes else "more than"
            text += f", {met} the budget of {format_bytes(self.budget_bytes)}"
        return f"{text}; largest there: {', '.join(self.largest)}" if self.largest else text

    def svg(self) -> str:
        """Return a static SVG picture without styles or scripts."""
        top = max(_peak(self.before), _peak(self.after), self.budget_bytes or 0, 1)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
            f'style="max-width:100%" role="img" font-family="sans-serif" font-size="11">'
            f"<title>{escape(printable(self.sentence))}</title>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            _area(self.before, top, "#bbb"),
        ]
        captions = [("#666", f"before, peak {format_bytes(_peak(self.before))}")]
        if self.after is not None:
            parts.append(_area(self.after, top, "#1f77b4"))
            captions.append(("#1f77b4", f"after, peak {format_bytes(_peak(self.after))}"))
        if self.budget_bytes is not None:
            y = _height(self.budget_bytes, top)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#c00" stroke-dasharray="6 4"/>')
            captions.append(("#c00", f"budget {format_bytes(self.budget_bytes)}"))
        for number, (color, caption) in enumerate(captions):
            parts.append(f'<text x="{_LEFT + 210 * number}" y="16" fill="{color}">{escape(caption)}</text>')
        return "".join([*parts, "</svg>"])

    def html(self, rows: list[tuple[str, str]]) -> str:
        """Return sentence, picture and table."""
        return f"{self._html()}{html_table(self.name, rows)}"

    def html_with_text(self, text: str) -> str:
        """Return sentence, picture and text."""
        return f"{self._html()}<pre>{escape(text)}</pre>"

    def _html(self) -> str:
        return f"<p>{escape(printable(self.sentence))}</p>{self.svg()}"

    def lines(self, width: int) -> list[str]:
        """Return the picture as text: gray before the plan, solid after it."""
        top = max(_peak(self.before), _peak(self.after), self.budget_bytes or 0, 1)
        labels = [format_bytes(top), *[""] * (_ROWS - 2), format_bytes(0)]
        margin = len(labels[0])
        columns = max(8, min(_MOST_BARS, width - margin - 2))
        before = _columns(self.before, columns) * _ROWS / top
        after = before if self.after is None else _columns(self.after, columns) * _ROWS / top
        budget = None if self.budget_bytes is None else min(int(self.budget_bytes * _ROWS / top), _ROWS - 1)
        drawn: list[str] = []
        for row in range(_ROWS - 1, -1, -1):
            empty = "-" if row == budget else " "
            cells = [_cell(low, high, row, empty) for low, high in zip(after.tolist(), before.tolist(), strict=True)]
            drawn.append(f"{labels[_ROWS - 1 - row]:>{margin}} |{''.join(cells)}".rstrip())
        known = "█ memory" if self.after is None else "█ after   ░ before"
        return [
            *drawn,
            f"{'':{margin}}  {known}{'   - budget' if budget is not None else ''}, {printable(self.space)} over runs",
        ]


def _peak(live: NDArray[np.int64] | None) -> int:
    return 0 if live is None else int(live.max(initial=0))


def _columns(live: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if not len(live):
        return np.zeros(count, np.int64)
    edges = np.arange(count + 1) * len(live) // count
    return np.array([live[low : max(high, low + 1)].max() for low, high in pairwise(edges)])


def _cell(after: float, before: float, row: int, empty: str) -> str:
    filled = min(max(after - row, 0.0), 1.0)
    if filled > 0:
        return _BLOCKS[max(1, round(filled * 8))]
    return "░" if before > row else empty


def _height(level: int, top: int) -> float:
    return _BOTTOM - level / top * (_BOTTOM - _TOP)


def _area(live: NDArray[np.int64], top: int, color: str) -> str:
    columns = _columns(live, min(_MOST_COLUMNS, max(len(live), 1)))
    step = (_RIGHT - _LEFT) / len(columns)
    corners = "".join(f"V{_height(level, top):.1f}h{step:.2f}" for level in columns.tolist())
    return f'<path d="M{_LEFT} {_BOTTOM}{corners}V{_BOTTOM}z" fill="{color}" fill-opacity=".75"/>'
