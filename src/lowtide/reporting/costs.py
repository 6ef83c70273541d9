"""The result of `costs`."""

from collections import defaultdict

from lowtide.core.documents import fields_of
from lowtide.core.units import percent
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.reporting.fields import CostsFields
from lowtide.reporting.table import printable

_MOST_KINDS = 8
_MOST_NAMES = 8


def costs_to_json(graph: Graph, prices: Prices) -> CostsFields:
    return fields_of(
        CostsFields,
        prices,
        ops=graph.n_ops,
        seconds=float(prices.seconds.sum()),
        kinds=[{"kind": kind, "ops": count, "seconds": seconds} for kind, count, seconds in _kinds(graph, prices)],
    )


def costs_to_text(graph: Graph, prices: Prices) -> str:
    total = float(prices.seconds.sum())
    lines = [f"{printable(graph.name)}: {graph.n_ops} ops take {total * 1000:.3f} ms on {prices.device}"]
    for kind, count, seconds in _kinds(graph, prices)[:_MOST_KINDS]:
        lines.append(f"  {percent(seconds / total if total else 0.0):>7}  {printable(kind)}   ({count} ops)")
    if prices.estimated:
        names = ", ".join(map(printable, prices.estimated[:_MOST_NAMES]))
        more = len(prices.estimated) - _MOST_NAMES
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"  estimated, not timed: {names}{rest}")
    return "\n".join(lines)


def _kinds(graph: Graph, prices: Prices) -> list[tuple[str, int, float]]:
    """Return (kind, number of ops, seconds), slowest first."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for kind, duration in zip(graph.op_kinds, prices.seconds.tolist(), strict=True):
        counts[kind] += 1
        seconds[kind] += duration
    return sorted(((kind, counts[kind], seconds[kind]) for kind in counts), key=lambda row: -row[2])
