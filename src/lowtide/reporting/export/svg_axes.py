"""The axes of an SVG picture: steps to the right, bytes upward, ticks at round figures with their unit."""

from collections.abc import Iterator
from dataclasses import dataclass

_MOST_TICKS = 8
_UNITS = ((2**20, "MiB"), (1, "B"))


@dataclass(frozen=True, slots=True)
class PictureFrame:
    """The rectangle that a picture fills, in its own units; y grows downward."""

    left: float
    top: float
    right: float
    bottom: float


def axes(first_step: int, last_step: int, most_bytes: int, frame: PictureFrame) -> list[str]:
    """Return the frame's left and lower edge, ticks, their figures, and what the axes are."""
    factor, unit = next(each for each in _UNITS if most_bytes >= each[0] or each[0] == 1)
    wide, high = frame.right - frame.left, frame.bottom - frame.top
    lines = [f"M{frame.left:g} {frame.top:g}V{frame.bottom:g}H{frame.right:g}"]
    labels: list[str] = []
    for step in round_figures(first_step, last_step):
        x = frame.left + (step - first_step) / max(last_step - first_step, 1) * wide
        lines.append(f"M{x:.1f} {frame.bottom:g}v4")
        labels.append(f'<text x="{x:.1f}" y="{frame.bottom + 15:g}" text-anchor="middle">{step}</text>')
    for level in round_figures(0, most_bytes / factor):
        y = frame.bottom - level * factor / most_bytes * high
        lines.append(f"M{frame.left:g} {y:.1f}h-4")
        labels.append(f'<text x="{frame.left - 7:g}" y="{y + 3:.1f}" text-anchor="end">{level:g}</text>')
    middle, center = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    x = frame.left - 52
    return [
        f'<path class="axis" d="{"".join(lines)}"/>',
        *labels,
        f'<text x="{middle:g}" y="{frame.bottom + 32:g}" text-anchor="middle">step</text>',
        f'<text x="{x:g}" y="{center:g}" text-anchor="middle" transform="rotate(-90 {x:g} {center:g})">'
        f"address, {unit}</text>",
    ]


def round_figures(low: float, high: float) -> Iterator[float]:
    """Yield the multiples of 1, 2 or 5 times a power of ten between two figures, at most a handful."""
    distance = 1.0 if float(high).is_integer() and float(low).is_integer() and high - low >= 1 else 1e-6
    while (high - low) / distance > _MOST_TICKS:
        leading = round(distance / 10 ** _exponent(distance))
        distance *= 2.5 if leading == 2 else 2.0
    at = -(-low // distance)
    while at * distance <= high * (1 + 1e-12):
        figure = at * distance
        yield int(figure) if distance >= 1 else round(figure, 7)
        at += 1


def _exponent(number: float) -> int:
    return int(f"{number:e}".partition("e")[2])
