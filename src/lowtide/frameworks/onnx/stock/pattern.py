"""The memory pattern of the stock runtime: after one run, all values of the next lie in one block."""

from lowtide.frameworks.onnx.stock.reuse import Allocations, StockRole

_ALIGNMENT = 256


def pattern_bytes(run: Allocations) -> int:
    """Return the size of the block; results and workspaces stay outside.

    Source: MemPatternPlanner of ONNX Runtime 1.31: each value goes into the smallest gap that holds it between those
    that live, the first of several, or behind the last of them. Complexity: O(values * live values).
    """
    live: list[tuple[int, int, int]] = []
    """Offset, size and block; in the order of their places, not of their offsets."""
    most = 0
    for block, made in run.events:
        if run.roles[block] is not StockRole.VALUE:
            continue
        if not made:
            live = [entry for entry in live if entry[2] != block]
            continue
        size = -(-run.sizes[block] // _ALIGNMENT) * _ALIGNMENT
        place, offset = _best_gap(live, size)
        live.insert(place, (offset, size, block))
        most = max(most, offset + size)
    return most


def _best_gap(live: list[tuple[int, int, int]], size: int) -> tuple[int, int]:
    """Return the place in the list and the offset."""
    best = (len(live), live[-1][0] + live[-1][1] if live else 0)
    waste: int | None = None
    end = 0
    for place, (offset, taken, _) in enumerate(live):
        gap = offset - end
        if gap >= size and (waste is None or gap - size < waste):
            waste, best = gap - size, (place, end)
        end = max(end, offset + taken)
    return best
