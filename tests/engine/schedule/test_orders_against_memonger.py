"""Compare longest-path orders with memonger's, recorded by tests/oracles/record_memonger.py, ties included."""

import gzip
import json
from pathlib import Path
from typing import Any

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder
from lowtide.engine.schedule import scheduler
from lowtide.engine.schedule.longest_path import LongestPath
from tests.oracles.longest_path import PathTree

DATA = Path(__file__).parent.parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "memonger_orders.json.gz").read_bytes()))


def _problem(record: dict[str, Any]) -> Problem:
    builder = GraphBuilder("recorded")
    for op in range(record["n_ops"]):
        reads = [before for before, after in record["edges"] if after == op]
        builder.add_op(f"op{op}", "op", reads=reads, writes=[builder.add_buffer(f"b{op}", 1)])
    return Problem(builder.build())


def _by_source(sources: list[int], order: list[int]) -> list[tuple[int, set[int]]]:
    """Split an order at its sources."""
    cuts = [place for place, op in enumerate(order) if op in sources]
    return [
        (order[first], set(order[first + 1 : last])) for first, last in zip(cuts, [*cuts[1:], len(order)], strict=True)
    ]


def test_every_order_is_memongers_own_with_all_its_ties() -> None:
    """If the paths form no tree, memonger fails, and merged paths replace them."""
    failed = 0
    for record in RECORDS:
        problem = _problem(record)
        expected = record["order"]
        if expected is None:
            expected = scheduler("longest-path-merged").order(problem).tolist()
            failed += 1
        assert scheduler("longest-path").order(problem).tolist() == expected
    assert 1 <= failed <= len(RECORDS) // 20


def test_beyond_its_work_the_order_is_that_of_merged_paths() -> None:
    problem = _problem(max(RECORDS, key=lambda record: len(record["edges"])))
    merged = scheduler("longest-path-merged").order(problem).tolist()
    assert LongestPath(max_work=10).order(problem).tolist() == merged
    assert LongestPath().order(problem).tolist() != merged


def test_merged_paths_start_the_sources_in_memongers_order_with_the_same_ops_after_each() -> None:
    """Without ties of paths or heights, which memonger breaks by its dictionaries and hash sets."""
    compared = 0
    for record in RECORDS:
        problem = _problem(record)
        tree = PathTree(problem)
        if tree.has_ties:
            continue
        compared += len(tree.sources) > 1
        ours = scheduler("longest-path-merged").order(problem).tolist()
        assert _by_source(tree.sources, ours) == _by_source(tree.sources, record["order"])
    assert compared >= 100
