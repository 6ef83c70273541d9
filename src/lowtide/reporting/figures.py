"""Byte figures per memory space, in words."""

from collections.abc import Mapping


def fragmentation(arena: Mapping[str, int], peak: Mapping[str, int]) -> dict[str, int]:
    """Return what addresses add to the peak, per space: alignment, and holes that nothing fits."""
    return {space: count - peak[space] for space, count in arena.items()}


def format_ratio(figure: Mapping[str, int], base: Mapping[str, int]) -> str:
    """Write the sum of one set of figures as a multiple of another, with three decimals; "-" where the base is 0."""
    total = sum(base.values())
    return f"{sum(figure.values()) / total:.3f}" if total else "-"
