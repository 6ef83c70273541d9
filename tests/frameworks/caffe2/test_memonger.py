"""memonger's functions give its known answers, for both kinds of messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lowtide.caffe2 import NetDef, OperatorDef, memonger, write_net
from lowtide.core.errors import GraphError, UnsupportedError, UsageError, VerificationError
from tests.frameworks.caffe2.benchmark_nets import load_nets
from tests.oracles.netdef_messages import message_class

LiveRange = memonger.LiveRange


def _ops(*rows: tuple[str, list[str], list[str]]) -> list[OperatorDef]:
    return [OperatorDef(type=kind, input=inputs, output=outputs) for kind, inputs, outputs in rows]


def _theirs(net: NetDef) -> Any:
    return message_class("NetDef").FromString(write_net(net, "net.pb"))


def test_three_copies_in_place_wait_for_one_another_and_not_for_themselves() -> None:
    graph = memonger.compute_interference_graph(_ops(*[("Copy", ["b1"], ["b1"])] * 3))
    assert list(graph.edges()) == [(0, 1), (0, 2), (1, 2)]
    assert graph.edges[0, 1] == {"deps": {"b1"}}
    assert graph.nodes[2]["op"].type == "Copy"
    assert (graph.successors(0), graph.predecessors(2), len(graph)) == ([1, 2], [0, 1], 3)


FOUR = [
    ("b1", LiveRange(1, 3, 10)),
    ("b2", LiveRange(3, 4, 1)),
    ("b3", LiveRange(5, 6, 1)),
    ("b4", LiveRange(5, 7, 10)),
]


def test_slots_of_memongers_own_ranges() -> None:
    greedy = memonger.compute_assignments_greedy(FOUR, None)
    assert greedy == [[FOUR[0], FOUR[3]], [FOUR[1], FOUR[2]]]
    assert memonger.get_memory_usage(greedy) == 11
    assert memonger.compute_blob_assignments(greedy) == {"b1": "b4", "b4": "b4", "b2": "b3", "b3": "b3"}
    assert memonger.get_memory_usage(memonger.compute_assignments_dp(FOUR, None)) == 11
    three = [("b1", LiveRange(1, 2, 10)), ("b2", LiveRange(4, 6, 1)), ("b3", LiveRange(5, 6, 10))]
    counter = [3]
    assert memonger.get_memory_usage(memonger.compute_assignments_dp(three, [], counter)) == 11
    assert counter == [4]


def test_slots_that_are_there_already_are_filled_from_their_ends() -> None:
    begun = [[FOUR[0]], [("old", LiveRange(0, None, 50))]]
    for assign in (memonger.compute_assignments_greedy, memonger.compute_assignments_dp):
        slots = assign(FOUR[1:], begun)
        assert memonger.get_memory_usage(slots) == 61
        assert [slot[0][0] for slot in slots][:2] == ["b1", "old"]
        assert len(slots[1]) == 1
    assert [len(slot) for slot in begun] == [1, 1]


def test_sixty_four_blobs_are_solved_with_proof() -> None:
    """memonger's recursion is exponential in the number of blobs."""
    rng = np.random.default_rng(3)
    begins = np.sort(rng.integers(0, 60, 64))
    known = [(int(b), int(b + rng.integers(1, 9)), int(rng.integers(1, 100))) for b in begins]
    ranges = {f"b{k}": LiveRange(*blob) for k, blob in enumerate(known)}
    by = {algo: memonger.compute_assignments(ranges, ["b3"], algo) for algo in memonger.AssignmentAlgorithm}
    greedy, searched = (memonger.get_memory_usage(slots) for slots in by.values())
    live = max(sum(size for defined, used, size in known if defined <= t <= used) for t in range(70))
    assert live <= searched < greedy
    for slots in by.values():
        memonger.verify_assignments(slots)
        assert slots[-1][0][0] == "b3"


def test_ranges_without_definition_or_last_use() -> None:
    ops = _ops(("Relu", ["a"], ["b"]), ("Relu", ["b"], ["c"]))
    assert memonger.compute_ranges(ops, {"a": 1, "b": 2, "c": 3}) == {
        "a": LiveRange(None, 0, 1),
        "b": LiveRange(0, 1, 2),
        "c": LiveRange(1, None, 3),
    }
    with pytest.raises(UsageError, match="'c'"):
        memonger.compute_ranges(ops, {"a": 1, "b": 2})
    assert memonger.is_compatible(LiveRange(4, 5, 1), [FOUR[0]], [])
    assert not memonger.is_compatible(LiveRange(4, 5, 1), [FOUR[0]], ["b1"])
    assert not memonger.is_compatible(LiveRange(None, 5, 1), [FOUR[0]], [])
    assert memonger.get_updated_ranges([("a", LiveRange(None, None, None))], 7) == [("a", LiveRange(-1, 7, 1))]


def test_an_overlap_in_a_slot_is_found() -> None:
    with pytest.raises(VerificationError, match="'b2'"):
        memonger.verify_assignments([[FOUR[0], FOUR[1]]])


CONVS = _ops(
    ("Copy", ["conv0_w_comp"], ["conv0_w"]),
    ("Conv", ["data", "conv0_w", "conv0_b"], ["conv0"]),
    ("Copy", ["conv2_w"], ["conv2_w"]),
    ("Conv", ["conv0", "conv2_w", "conv2_b"], ["conv2"]),
)


def test_longer_paths_start_first() -> None:
    for more, expected in (
        ((), [0, 1, 2, 3]),
        (
            _ops(("Copy", ["data1"], ["data2"]), ("Copy", ["data2"], ["data3"])),
            [0, 1, 2, 3, 4, 5],
        ),
    ):
        graph = memonger.compute_interference_graph([*CONVS, *more])
        assert memonger.topological_sort_traversal_longest_path(graph) == expected
    assert memonger.topological_sort_traversal_longest_path(memonger.compute_interference_graph(CONVS[:1])) == [0]


def test_orders_take_any_graph_with_nodes_and_edges() -> None:
    @dataclass
    class Foreign:
        nodes: str
        pairs: list[tuple[str, str]]

        def __iter__(self) -> Iterator[str]:
            return iter(self.nodes)

        def edges(self) -> list[tuple[str, str]]:
            return self.pairs

    assert memonger.topological_sort_traversal(Foreign("abc", [("a", "c"), ("b", "c")])) == ["a", "b", "c"]
    with pytest.raises(UsageError, match="cycle"):
        memonger.topological_sort_traversal(Foreign("ab", [("a", "b"), ("b", "a")]))
    with pytest.raises(UsageError, match="forward"):
        memonger.topological_sort_traversal_longest_path(Foreign("ab", [("b", "a")]))


def test_both_kinds_of_messages_give_equal_results() -> None:
    ours = load_nets().two_losses(3).net
    theirs, gradients = _theirs(ours), [blob for blob in ours.external_output if "grad" in blob]
    losses = ["lossa", "lossb"]
    pairs = [
        (memonger.share_grad_blobs(net, losses, gradients, "", blob_shapes={"fc0": [3, 4]}) for net in (ours, theirs)),
        (memonger.optimize_interference(net, gradients).net for net in (ours, theirs)),
        (memonger.optimize_inference_fast(net, []) for net in (ours, theirs)),
        (memonger.release_blobs_when_used(net, {"fc1"}) for net in (ours, theirs)),
    ]
    for mine, their in pairs:
        assert isinstance(their, message_class("NetDef"))
        assert _theirs(mine) == their
        assert their != theirs
    memonger.apply_assignments(theirs, {"fc0": "fc1"})
    assert not any("fc0" in op.output for op in theirs.op)


def test_nets_for_inference_are_refused_where_they_are_none() -> None:
    chain = NetDef(op=_ops(("Relu", ["x"], ["a"]), ("Relu", ["a"], ["b"])))
    with pytest.raises(GraphError, match="'x'"):
        memonger.optimize_inference_for_dag(chain, ["x"])
    chain.external_input.append("x")
    chain.op[1].is_gradient_op = True
    with pytest.raises(UnsupportedError, match="gradient"):
        memonger.optimize_inference_for_dag(chain, ["x"])
    with pytest.raises(UsageError, match="NetDef"):
        memonger.optimize_inference_for_dag(42, ["x"])


def test_a_net_may_come_wrapped_as_caffe2_wraps_it() -> None:
    class Net:
        def Proto(self) -> Any:  # noqa: N802
            return load_nets().conv_chain(5, training=False).net

    before = {blob for op in Net().Proto().op for blob in op.output}
    shared = memonger.optimize_inference_for_dag(Net(), ["data"], "name_x")
    assert len({blob for op in shared.op for blob in op.output}) < len(before)
    assert any("name_x" in blob for op in shared.op for blob in op.output)


def test_naming_a_parameter_as_a_head_changes_nothing() -> None:
    net = load_nets().conv_chain(6, training=False).net
    assert memonger.optimize_inference_for_dag(net, ["data"]) == memonger.optimize_inference_for_dag(
        net, ["conv3_w", "data"]
    )


def test_an_op_fed_one_input_twice_gets_no_two_equal_outputs() -> None:
    sums = [("Sum", [a, b], [f"s{i}"]) for i, (a, b) in enumerate([("p", "p"), ("p", "q"), ("q", "p"), ("q", "q")])]
    joined = ("Concat", ["s0", "s1", "s2", "s3"], ["joined", "lengths"])
    rows = [("FC", ["data"], ["p"]), ("FC", ["data"], ["q"]), *sums, joined, ("Relu", ["joined"], ["merged"])]
    shared = memonger.optimize_inference_fast(NetDef(op=_ops(*rows)), ["data", "merged"])
    assert all(len(op.output) == len(set(op.output)) for op in shared.op)


def test_blobs_of_different_devices_never_share() -> None:
    net = load_nets().two_losses(4).net
    for place, op in enumerate(net.op):
        op.device_option.device_type = int(place < 6)
    losses, gradients = ["lossa", "lossb"], [blob for blob in net.external_output if "grad" in blob]
    for shared in (
        memonger.share_grad_blobs(net, losses, gradients, "", share_activations=True),
        memonger.optimize_interference(net, [], lambda graph: list(graph)).net,
    ):
        devices: dict[str, set[int]] = {}
        for former, latter in zip(net.op, shared.op, strict=True):
            for before, after in zip(former.output, latter.output, strict=True):
                writer = next(op for op in net.op if before in op.output)
                devices.setdefault(after, set()).add(writer.device_option.device_type)
        assert all(len(found) == 1 for found in devices.values())


def test_equality_ignores_names_and_finds_merged_values() -> None:
    rows = [("FC", ["d"], ["x"]), ("FC", ["x"], ["y"]), ("FC", ["x"], ["z"]), ("Sum", ["y", "z"], ["out"])]
    net = NetDef(op=_ops(*rows), external_input=["d"])
    other = NetDef(op=_ops(*rows), external_input=["other"])
    memonger.apply_assignments(other, {"d": "other", "x": "q", "y": "r"})
    assert memonger.verify_graph_equality(net, other)
    memonger.apply_assignments(other, {"z": "r"})
    assert not memonger.verify_graph_equality(net, other)
    assert memonger.verify_inplace_blobs(net, other)
    memonger.apply_assignments(other, {"q": "r"})
    assert not memonger.verify_inplace_blobs(net, other)


def test_usage_and_statistics_count_bytes() -> None:
    net = NetDef(op=_ops(("FC", ["d"], ["x"]), ("Relu", ["x"], ["y"]), ("Free", ["x"], ["x"]), ("FC", ["y"], ["z"])))
    shapes, types = {"x": [2, 3], "y": [4], "z": [10]}, {"x": 1, "y": 13, "z": 12}
    usage = memonger.estimate_memory_usage([net], shapes, types, net.op[0].device_option)
    assert usage == (24 + 32 + 20, 24 + 32, {"FC": 44, "Relu": 32})
    blobs = {"x": np.zeros(6, np.float32), "y": np.zeros(4)}
    assert memonger.collect_blob_sizes(net, blobs) == {"d": 0, "x": 24, "y": 32, "z": 0}
    assert memonger.compute_statistics([[("x", FOUR[0][1]), ("y", FOUR[1][1])]], blobs) == (56, 32)
    assert memonger.compute_statistics([FOUR]) == memonger.Statistics(22, 10)
    with pytest.raises(UsageError, match="blobs="):
        memonger.collect_blob_sizes(net)


def test_blobs_are_freed_once_after_their_last_use() -> None:
    rows = [("FC", ["data"], ["x"]), ("FC", ["x"], ["y"]), ("FC", ["x"], ["z"]), ("FC", ["y"], ["u"])]
    rows += [("Alias", ["u"], ["u_alias"]), ("Sum", ["z", "u"], ["out"])]
    freed = memonger.release_blobs_when_used(NetDef(op=_ops(*rows), external_output=["out"]), {"data"})
    found = [(op.type, list(op.input)) for op in freed.op]
    assert [names for kind, names in found if kind == "Free"] == [["x"], ["y"], ["z"]]
    assert found.index(("Free", ["x"])) > found.index(("FC", ["x"]))


def test_equality_takes_one_blob_from_outside_for_another_where_the_nets_have_others() -> None:
    rows = [("FC", ["d", "v_w"], ["v"]), ("FC", ["v", "u_w"], ["u"])]
    net = NetDef(op=_ops(*rows), external_input=["d", "v_w", "u_w"])
    again = NetDef(op=_ops(("FC", ["d", "v_w"], ["v"]), ("FC", ["v", "v_w"], ["v"])), external_input=["d", "v_w"])
    assert memonger.verify_graph_equality(net, again)
    again.op[1].input[0] = "d"
    assert not memonger.verify_graph_equality(net, again)


def test_an_op_that_runs_in_place_only_is_refused_elsewhere() -> None:
    rows = [("IndexFreeze", ["a"], ["b"]), ("Sum", ["b", "b"], ["c"])]
    net = NetDef(op=_ops(*rows), external_input=["a"])
    for share in (memonger.optimize_inference_for_dag, memonger.optimize_inference_fast):
        with pytest.raises(GraphError, match=r"op 0 \(IndexFreeze\) writes 'b' and runs in place only"):
            share(net, ["a"])
    net.op[0].output[0] = net.op[1].input[0] = net.op[1].input[1] = "a"
    assert memonger.optimize_inference_fast(net, []) == net


def test_one_pass_over_a_net_that_runs_ops_at_once_lets_no_two_branches_share() -> None:
    """In program order, the second branch could reuse blobs of the first."""
    ops = _ops(
        *(("Relu", ["x"], ["a1"]), ("Relu", ["a1"], ["a2"]), ("Relu", ["a2"], ["a3"])),
        *(("Relu", ["x"], ["b1"]), ("Relu", ["b1"], ["b2"]), ("Relu", ["b2"], ["b3"])),
        ("Sum", ["a3", "b3"], ["y"]),
    )
    for kind, n_blobs in (("simple", 5), ("", 5), ("dag", 6), ("async_scheduling", 6)):
        net = NetDef(type=kind, num_workers=4, op=ops, external_input=["x"], external_output=["y"])
        made = memonger.optimize_inference_fast(net, [])
        assert memonger.verify_graph_equality(net, made)
        branches = [{blob for op in made.op[begin : begin + 3] for blob in op.output} for begin in (0, 3)]
        assert bool(branches[0] & branches[1]) == (n_blobs == 5)
        assert len({blob for op in made.op for blob in (*op.input, *op.output)}) == n_blobs
