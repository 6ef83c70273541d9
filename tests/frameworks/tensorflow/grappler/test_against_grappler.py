"""Node for node against TensorFlow's own memory optimizer, recorded by tests/oracles/record_grappler.py."""

from typing import Any

import pytest

from lowtide.frameworks.tensorflow.grappler.accumulate import accumulate_sums, sums_near_capacity
from lowtide.frameworks.tensorflow.grappler.levels import LevelName, optimize_memory
from lowtide.frameworks.tensorflow.grappler.nodes import CHEAP_KINDS, nodes_of
from lowtide.frameworks.tensorflow.grappler.recompute import candidate_ops, recompute_groups, target_ops
from lowtide.frameworks.tensorflow.grappler.swaps import (
    PCIE_BYTES_PER_SECOND,
    Skipped,
    Swap,
    choose_swaps,
    earliest_completion_times,
    make_swaps,
)
from tests.oracles.grappler_records import graph_of, hints_of, pressure_in, records, source

Nodes = dict[str, tuple[str, list[str]]]


def _result(record: dict[str, Any]) -> Nodes:
    return {name: (kind, inputs) for name, kind, inputs in record["result"]}


def _swap_name(op: str, read: int) -> str:
    return f"{op}_{read}"


@pytest.mark.parametrize("level", ["recomputation", "manual"])
def test_the_same_ops_are_copied_for_the_same_readers(level: LevelName) -> None:
    copied = 0
    for record in records(level):
        graph, hints = graph_of(record), hints_of(record)
        targets = target_ops(graph, record["scope"])
        cheap = CHEAP_KINDS if level == "recomputation" else ()
        nodes = nodes_of(graph)
        groups = recompute_groups(nodes, candidate_ops(graph, targets, cheap, hints), targets)
        ours = {
            (graph.op_names[op], graph.op_names[target])
            for group in groups
            for target in group.targets
            for op in nodes.inputs[target]
            if op in group.ops
        }
        theirs = {
            (source(name).removeprefix("Recomputed/"), reader)
            for reader, (_, inputs) in _result(record).items()
            for name in inputs
            if source(name).startswith("Recomputed/") and not reader.startswith(("Recomputed/", "swap_"))
        }
        assert ours == theirs, record["name"]
        copies = {name.removeprefix("Recomputed/") for name in _result(record) if name.startswith("Recomputed/")}
        assert {graph.op_names[op] for group in groups for op in group.ops} == copies, record["name"]
        done = optimize_memory(graph, level, hints=hints, scope=record["scope"], cheap_kinds=CHEAP_KINDS)
        assert set(done.recomputed) == copies
        copied += len(copies)
    assert copied > 50


def _check_swaps(record: dict[str, Any], swaps: list[Swap]) -> int:
    """Check swaps with their triggers; returns how many there are.

    Grappler leaves out nodes where its search meets an edge from a swap made just before, which its name map does not
    hold. Which these are depends on the order of a hash map, so that it may make fewer swaps, never others.
    """
    graph, result = graph_of(record), _result(record)
    ends = earliest_completion_times(graph, nodes_of(graph))
    places = {name: op for op, name in enumerate(graph.op_names)}
    ours = {_swap_name(graph.op_names[swap.op], swap.read): swap for swap in swaps}
    theirs = {name.removeprefix("swap_out_") for name in result if name.startswith("swap_out_")}
    assert theirs <= ours.keys(), record["name"]
    for name in ours.keys() - theirs:
        others = [swap for swap in swaps if swap.op != ours[name].op]
        touched = {graph.op_names[op] for swap in others for op in (swap.op, swap.out_trigger)}
        assert _depends_on(record, graph.op_names[ours[name].op], touched), record["name"]
    for name in theirs:
        swap = ours[name]
        (in_trigger,) = (source(each) for each in result[f"swap_in_{name}"][1] if each.startswith("^"))
        assert in_trigger == graph.op_names[swap.in_trigger]
        (out_trigger,) = (reader for reader, (_, inputs) in result.items() if f"^swap_out_{name}" in inputs)
        assert ends[places[out_trigger]] == ends[swap.out_trigger]  # of several that end at once, any will do
    return len(theirs)


def _depends_on(record: dict[str, Any], name: str, others: set[str]) -> bool:
    inputs = {node["name"]: [source(each) for each in node["inputs"]] for node in record["nodes"]}
    stack, seen = [name], set[str]()
    while stack:
        node = stack.pop()
        if node in others:
            return True
        stack += [each for each in inputs[node] if each not in seen]
        seen.update(inputs[node])
    return False


def test_the_same_reads_are_swapped_with_the_same_triggers_under_the_same_estimate_of_memory() -> None:
    """Where Grappler's own estimate of the peak is given; ours frees before the next op allocates."""
    found = exact = 0
    for record in records("swapping"):
        graph = graph_of(record)
        nodes, skipped = nodes_of(graph), Skipped()
        chosen: dict[int, list[int]] = {}
        for op, read in choose_swaps(graph, nodes, pressure_in(record, graph), skipped):
            chosen.setdefault(op, []).append(read)
        swaps = make_swaps(graph, nodes, chosen, skipped, PCIE_BYTES_PER_SECOND)
        count = _check_swaps(record, swaps)
        found += count
        exact += count == len(swaps)
    assert found > 80
    assert exact > 0.7 * len(records("swapping"))


def test_hinted_reads_are_swapped_with_the_same_triggers() -> None:
    found = 0
    for record in records("manual"):
        hints = hints_of(record)
        if hints.swap:
            found += _check_swaps(record, list(optimize_memory(graph_of(record), "manual", hints=hints).swapped))
    assert found > 30


def test_the_same_sums_are_accumulated_in_the_first_round() -> None:
    """Under Grappler's own estimate of the peak; it may rewrite more in later rounds."""
    first_round = in_all = 0
    for record in records("scheduling"):
        graph, result = graph_of(record), _result(record)
        theirs = {name for name, (kind, _) in result.items() if kind == "DestroyTemporaryVariable"}
        sums = sums_near_capacity(graph, pressure_in(record, graph), record["capacity_bytes"])
        assert {graph.op_names[op] for op in sums} <= theirs, record["name"]
        assert bool(sums) == bool(theirs), record["name"]
        first_round += len(sums)
        in_all += len(theirs)
    assert first_round > 0.5 * in_all
    assert in_all > 40


def test_an_accumulation_adds_the_same_operands_under_the_same_names() -> None:
    for record in records("scheduling"):
        graph, result = graph_of(record), _result(record)
        theirs = {name for name, (kind, _) in result.items() if kind == "DestroyTemporaryVariable"}
        rewritten = accumulate_sums(graph, [op for op, name in enumerate(graph.op_names) if name in theirs])
        places = {name: op for op, name in enumerate(rewritten.op_names)}
        for name, (kind, inputs) in result.items():
            if kind == "AssignAdd":
                (operand,) = rewritten.reads[places[name]].tolist()
                assert rewritten.buffer_names[operand] == (inputs[1] if ":" in inputs[1] else f"{inputs[1]}:0")
            if kind == "DestroyTemporaryVariable":
                assert rewritten.op_kinds[places[name]] == kind
