"""memonger's own longest-path order, recorded by tests/oracles/record_memonger.py, starts the sources as ours does."""

import gzip
import json
from pathlib import Path
from typing import Any

from lowtide.analysis import Problem
from lowtide.graph import GraphBuilder
from lowtide.schedule import scheduler
from tests.oracles.longest_path import PathTree

DATA = Path(__file__).parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "memonger_orders.json.gz").read_bytes()))


def _problem(record: dict[str, Any]) -> Problem:
    builder = GraphBuilder("recorded")
    for op in range(record["n_ops"]):
        reads = [before for before, after in record["edges"] if after == op]
        builder.add_op(f"op{op}", "op", reads=reads, writes=[builder.add_buffer(f"b{op}", 1)])
    return Problem(builder.build())


def _by_source(sources: list[int], order: list[int]) -> list[tuple[int, set[int]]]:
    """Cut an order at its sources: each one with the ops that run before the next source."""
    cuts = [place for place, op in enumerate(order) if op in sources]
    return [
        (order[first], set(order[first + 1 : last])) for first, last in zip(cuts, [*cuts[1:], len(order)], strict=True)
    ]


def test_sources_start_in_memongers_order_with_the_same_ops_after_each() -> None:
    """Where no paths or heights tie: there memonger follows the order of its dictionaries, and we the program's. What
    runs after a source stands in the order of a hash set there, so that only its members are compared."""
    compared = 0
    for record in RECORDS:
        problem = _problem(record)
        tree = PathTree(problem)
        if tree.has_ties:
            continue
        compared += len(tree.sources) > 1
        ours = scheduler("longest-path").order(problem).tolist()
        assert _by_source(tree.sources, ours) == _by_source(tree.sources, record["order"])
    assert compared >= 100
