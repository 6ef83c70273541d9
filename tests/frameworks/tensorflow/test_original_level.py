"""`level="original:…"` does to real nodes what Grappler itself did, recorded by tests/oracles/record_grappler.py."""

from typing import Any

import pytest

from lowtide.frameworks.tensorflow.levels import Changes, optimize_nodes
from tests.frameworks.tensorflow.recorded_nodes import nodes_of_record, situation_of
from tests.oracles.grappler_records import records

Rows = dict[str, tuple[str, list[str]]]


def _ours(record: dict[str, Any]) -> tuple[Changes, Rows]:
    nodes = nodes_of_record(record)
    changes = optimize_nodes(nodes, situation_of(record, nodes), f"original:{record['level']}", record["scope"])
    return changes, {node.name: (node.op, _sorted(node.inputs)) for node in changes.nodes}


def _theirs(record: dict[str, Any]) -> Rows:
    return {name: (kind, _sorted(inputs)) for name, kind, inputs in record["result"]}


def _sorted(inputs: Any) -> list[str]:
    """Control inputs have no order."""
    return [text for text in inputs if text[0] != "^"] + sorted(text for text in inputs if text[0] == "^")


def _differ(one: Rows, other: Rows) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def test_recomputation_gives_the_same_nodes_with_the_same_inputs() -> None:
    """Where the order of the graph's nodes, which the records do not hold, decides what triggers wait for, only that
    may differ."""
    exact = 0
    for record in records("recomputation"):
        changes, ours = _ours(record)
        differ = _differ(ours, _theirs(record))
        assert all(name.startswith("RecomputeTrigger/") for name in differ), record["name"]
        assert len(changes.recomputed) == sum(name.startswith("Recomputed/") for name in ours)
        exact += not differ
    assert exact > 0.8 * len(records("recomputation"))


@pytest.mark.parametrize("level", ["manual", "swapping"])
def test_swaps_are_the_same_nodes_on_most_graphs_and_never_others(level: str) -> None:
    """The original leaves out nodes by the order of a hash map; what it does make, ours makes, with the same inputs."""
    exact = 0
    for record in records(level):
        _, ours = _ours(record)
        theirs = _theirs(record)
        exact += not {name for name in _differ(ours, theirs) if not name.startswith("RecomputeTrigger/")}
        swaps = {name for name in theirs if name.startswith("swap_")}
        assert swaps <= ours.keys(), record["name"]
        assert all(ours[name] == theirs[name] for name in swaps if name.startswith("swap_in_"))
    assert exact > 0.7 * len(records(level))


def test_sums_become_the_same_accumulations_but_for_which_value_comes_first() -> None:
    """The original takes the values in the order of a hash map, and makes more in later rounds in some graphs."""
    exact = 0
    for record in records("scheduling"):
        _, ours = _ours(record)
        theirs = _theirs(record)
        free = ("/tmp_var", "/tmp_var_zeros")
        differ = {name for name in _differ(ours, theirs) if not name.endswith(free)}
        exact += not differ
    assert exact >= 0.9 * len(records("scheduling"))
