"""SVG pictures: each buffer is a rectangle of steps (x) and addresses (y)."""

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph
from lowtide.engine.packing import Buffers, Packed
from lowtide.engine.packing.buffers import live_pieces
from lowtide.engine.plan import Plan
from lowtide.reporting.export.placed import Placed, with_addresses
from lowtide.reporting.table import printable

_WIDTH, _HEIGHT = 1200.0, 640.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 1180.0, 44.0, 592.0
"""y grows downward."""
_COLORS = ("#8ecae6", "#ffb703", "#a3b18a", "#e5989b", "#b8a1d9", "#f4a261", "#90be6d", "#c9ada7")
_MOST_NAMED = 4000
"""The smaller rectangles are merged."""
_GRAIN = 0.5
"""Grid to which merged rectangles are rounded outward."""
_LEAST_OUTLINED = 2.0
_LONGEST_NAME = 200
_LETTER_WIDTH, _LETTER_HEIGHT = 5.6, 11.0
_STYLE = (
    "text{font:9px sans-serif;fill:#222}.caption{font-size:13px}.c{stroke:#333;stroke-width:.5}"
    ".h{stroke:#000;stroke-width:1.5}.bound{stroke:#080}.capacity{stroke:#c00}"
    ".bound,.capacity{stroke-dasharray:6 4}.axis{stroke:#888;stroke-width:.7;fill:none}"
)


def packing_svg(name: str, buffers: Buffers, packed: Packed, capacity: int | None = None) -> bytes:
    """Return an SVG picture of a packing; equal packings give equal pictures.

    A buffer with gaps is several rectangles. Heavy outlines mark buffers that set the lower bound.
    """
    pieces = live_pieces(buffers)
    pieces = pieces[buffers.sizes[pieces[:, 0]] > 0]
    ceiling = max(packed.arena_bytes, packed.lower_bound_bytes, capacity or 0, 1)
    boxes = _boxes(buffers, packed, pieces, ceiling)
    by_area = np.argsort(-boxes[:, 2] * boxes[:, 3], kind="stable")
    named = np.sort(by_area[:_MOST_NAMED])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}"><style>{_STYLE}</style>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="caption" x="{_LEFT:g}" y="22">{_xml(_caption(name, buffers, packed, capacity))}</text>',
        *_crowd(pieces, boxes, by_area[_MOST_NAMED:]),
    ]
    holders = set(packed.bound_holders)
    for piece in named.tolist():
        buffer = int(pieces[piece, 0])
        parts.append(_box(buffers, int(packed.offsets[buffer]), buffer, boxes[piece].tolist(), buffer in holders))
    for kind, level in (("bound", packed.lower_bound_bytes), ("capacity", capacity)):
        if level is not None:
            y = _BOTTOM - level / ceiling * (_BOTTOM - _TOP)
            title = f"<title>{kind}: {level} bytes</title>"
            parts.append(
                f'<line class="{kind}" x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}">{title}</line>'
            )
    if len(pieces):
        parts += _axes(int(pieces[:, 1].min()), int(pieces[:, 2].max()), ceiling)
    parts.append("</svg>\n")
    return "\n".join(parts).encode()


def _boxes(buffers: Buffers, packed: Packed, pieces: NDArray[np.int64], ceiling: int) -> NDArray[np.float64]:
    """Return x, y, width and height, rounded to tenths as printed."""
    owners = pieces[:, 0]
    first, last = (pieces[:, column].astype(np.float64) for column in (1, 2))
    start = first.min(initial=np.inf)
    across = (_RIGHT - _LEFT) / max(last.max(initial=-np.inf) - start, 1.0)
    up = (_BOTTOM - _TOP) / ceiling
    low, high = packed.offsets[owners], packed.offsets[owners] + buffers.sizes[owners]
    left, right = _LEFT + (first - start) * across, _LEFT + (last - start) * across
    top, bottom = _BOTTOM - high * up, _BOTTOM - low * up
    corners = np.stack([left, top, right, bottom], axis=1).round(1)
    corners[:, 2:] -= corners[:, :2]
    return np.round(corners, 1).astype(np.float64)


def _crowd(pieces: NDArray[np.int64], boxes: NDArray[np.float64], chosen: NDArray[np.int64]) -> list[str]:
    paths: list[str] = []
    for color, fill in enumerate(_COLORS):
        mine = boxes[chosen[pieces[chosen, 0] % len(_COLORS) == color]]
        if len(mine):
            low = np.floor(mine[:, :2] / _GRAIN) * _GRAIN
            high = np.maximum(np.ceil((mine[:, :2] + mine[:, 2:]) / _GRAIN) * _GRAIN, low + _GRAIN)
            mine = np.concatenate([low, high - low], axis=1)
            shapes = [f"M{x:g} {y:g}h{w:g}v{h:g}h{-w:g}z" for x, y, w, h in np.unique(mine, axis=0).tolist()]
            paths.append(f'<path fill="{fill}" d="{"".join(shapes)}"/>')
    return paths


def _box(buffers: Buffers, offset: int, buffer: int, box: list[float], holds_bound: bool) -> str:
    x, y, width, height = box
    name = buffers.name(buffer)[:_LONGEST_NAME]
    size = int(buffers.sizes[buffer])
    title = f"{name}: {size} bytes at {offset}, steps {buffers.first[buffer]} to {buffers.last[buffer]}"
    outline = ' class="h"' if holds_bound else ' class="c"'
    if min(width, height) < _LEAST_OUTLINED:
        outline = ""  # an outline would cover it
    fill = _COLORS[buffer % len(_COLORS)]
    place = f'x="{x:g}" y="{y:g}" width="{max(width, 0.1):g}" height="{max(height, 0.1):g}"'
    drawn = f'<rect{outline} fill="{fill}" {place}><title>{_xml(title)}</title></rect>'
    if height < _LETTER_HEIGHT or printable(name) != name or len(name) * _LETTER_WIDTH > width:
        return drawn
    center, middle = x + width / 2, y + height / 2 + 3
    return f'{drawn}<text x="{center:.1f}" y="{middle:.1f}" text-anchor="middle">{_xml(name)}</text>'


def _caption(name: str, buffers: Buffers, packed: Packed, capacity: int | None) -> str:
    limit = "" if capacity is None else f", capacity {capacity}"
    figures = f"arena {packed.arena_bytes} bytes, lower bound {packed.lower_bound_bytes}{limit}"
    return f"{name[:_LONGEST_NAME]}: {len(buffers)} buffers, {packed.status}, {figures}"


def _xml(text: str) -> str:
    return escape(printable(text))


def plan_svg(graph: Graph, plan: Plan, space: int) -> bytes:
    """Return an SVG picture of a memory space with its lower bound; scratch is above the arena."""
    plan = with_addresses(graph, plan)
    placed = Placed.of(graph, plan, space)
    name = graph.spaces[space].name
    buffers = Buffers(placed.first + 1, placed.last + 1, placed.sizes, names=placed.names)
    drawn = Packed(
        offsets=placed.offsets,
        arena_bytes=plan.arena_bytes.get(name, placed.arena_bytes),
        lower_bound_bytes=plan.lower_bound_bytes.get(name, 0),
        status=plan.status,
        bound_holders=(),
        conflict=(),
        method="plan",
        work=0,
    )
    return packing_svg(f"{graph.name}, {name}", buffers, drawn, graph.spaces[space].capacity_bytes)


_MOST_TICKS = 8


def _axes(first_step: int, last_step: int, most_bytes: int) -> list[str]:
    factor, unit = (2**20, "MiB") if most_bytes >= 2**20 else (1, "B")
    lines = [f"M{_LEFT:g} {_TOP:g}V{_BOTTOM:g}H{_RIGHT:g}"]
    labels: list[str] = []
    for step in _round_figures(first_step, last_step):
        x = _LEFT + (step - first_step) / max(last_step - first_step, 1) * (_RIGHT - _LEFT)
        lines.append(f"M{x:.1f} {_BOTTOM:g}v4")
        labels.append(f'<text x="{x:.1f}" y="{_BOTTOM + 15:g}" text-anchor="middle">{step}</text>')
    for level in _round_figures(0, most_bytes / factor):
        y = _BOTTOM - level * factor / most_bytes * (_BOTTOM - _TOP)
        lines.append(f"M{_LEFT:g} {y:.1f}h-4")
        labels.append(f'<text x="{_LEFT - 7:g}" y="{y + 3:.1f}" text-anchor="end">{level:g}</text>')
    x, middle, center = _LEFT - 52, (_LEFT + _RIGHT) / 2, (_TOP + _BOTTOM) / 2
    return [
        f'<path class="axis" d="{"".join(lines)}"/>',
        *labels,
        f'<text x="{middle:g}" y="{_BOTTOM + 32:g}" text-anchor="middle">step</text>',
        f'<text x="{x:g}" y="{center:g}" text-anchor="middle" transform="rotate(-90 {x:g} {center:g})">'
        f"address, {unit}</text>",
    ]


def _round_figures(low: float, high: float) -> Iterator[float]:
    """Yield up to `_MOST_TICKS` multiples of 1, 2 or 5 times a power of ten."""
    distance = 1.0 if float(high).is_integer() and float(low).is_integer() and high - low >= 1 else 1e-6
    while (high - low) / distance > _MOST_TICKS:
        leading = round(distance / 10 ** math.floor(math.log10(distance)))
        distance *= 2.5 if leading == 2 else 2.0
    at = -(-low // distance)
    while at * distance <= high * (1 + 1e-12):
        figure = at * distance
        yield int(figure) if distance >= 1 else round(figure, 7)
        at += 1
