"""Sharing by interference: order, ranges, slots, names."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.share import (
    BlobRange,
    NamedNet,
    NamedOp,
    blob_ranges,
    interference_edges,
    longest_path_order,
    merged_path_order,
    share_by_interference,
    topological_order,
)
from tests.oracles.named_nets import random_net, same_values, touches, training_net, waits


def _op(inputs: str, outputs: str, **fields: object) -> NamedOp:
    return replace(NamedOp(kind="op", inputs=tuple(inputs.split()), outputs=tuple(outputs.split())), **fields)


def _net(*ops: NamedOp, **fields: object) -> NamedNet:
    return replace(NamedNet(ops=ops), **fields)


def _in_order(net: NamedNet, order: Sequence[int]) -> NamedNet:
    """Return the net with its ops in an order, without `after`."""
    return replace(net, ops=tuple(replace(net.ops[op], after=()) for op in order))


def test_three_in_place_copies_give_three_edges_and_no_loop() -> None:
    assert interference_edges(_net(*[_op("b1", "b1")] * 3)) == [(0, 1), (0, 2), (1, 2)]


def test_a_second_writer_waits_for_the_readers_of_the_first_contents() -> None:
    assert interference_edges(_net(_op("", "a"), _op("a", "b"), _op("", "a"), _op("a", "c"))) == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 2),
        (2, 3),
    ]


CONVOLUTIONS = [
    _op("conv0_w_comp", "conv0_w"),
    _op("data conv0_w conv0_b", "conv0"),
    _op("conv2_w", "conv2_w"),
    _op("conv0 conv2_w conv2_b", "conv2"),
]


def test_the_longest_path_goes_first_as_in_memongers_own_tests() -> None:
    assert longest_path_order(_net(*CONVOLUTIONS)) == [0, 1, 2, 3]
    two_targets = [*CONVOLUTIONS, _op("data1", "data2"), _op("data2", "data3")]
    assert longest_path_order(_net(*two_targets)) == [0, 1, 2, 3, 4, 5]
    assert longest_path_order(_net(CONVOLUTIONS[0])) == [0]
    assert longest_path_order(_net()) == []


ORDERS = {
    "topological": topological_order,
    "longest-path": longest_path_order,
    "longest-path-merged": merged_path_order,
}


@given(st.integers(0, 10**6), st.sampled_from(sorted(ORDERS)))
def test_every_order_keeps_every_dependence(seed: int, name: str) -> None:
    net = random_net(seed)
    order = ORDERS[name](net)
    assert sorted(order) == list(range(len(net.ops)))
    assert all(waits(net)[op] <= set(order[:place]) for place, op in enumerate(order))


def test_ranges_are_from_the_first_write_to_the_last_read() -> None:
    net = _net(_op("x", "a"), _op("a", "b c"), _op("a c", "a"), _op("a", "d"), sizes={"a": 7})
    assert blob_ranges(net) == [
        BlobRange("x", None, 0),
        BlobRange("a", 0, 3, 7),
        BlobRange("b", 1, None),
        BlobRange("c", 1, 2),
        BlobRange("d", 3, None),
    ]


def test_a_blob_written_after_its_last_read_lives_to_the_end_and_one_read_first_from_the_start() -> None:
    net = _net(_op("", "a"), _op("a old", "b"), _op("", "a old"), _op("b", "c"))
    assert {blob.name: (blob.defined, blob.used) for blob in blob_ranges(net)} == {
        "a": (0, None),
        "old": (None, None),
        "b": (1, 3),
        "c": (3, None),
    }


@given(st.integers(0, 10**6), st.sampled_from(sorted(ORDERS)), st.sampled_from(["greedy", "optimal"]))
def test_the_shared_net_computes_the_same_and_nothing_that_must_not_shares(
    seed: int, order: str, algorithm: str
) -> None:
    net = random_net(seed)
    never_share = set(net.blobs[::5])
    found = share_by_interference(net, never_share, order=order, algorithm=algorithm, work_limit=1000)
    assert same_values(_in_order(net, found.order), found.shared.net, range(len(net.ops)))
    assert not never_share.union(net.externals) & set(found.shared.renames)
    slots: dict[str, set[str | None]] = {}
    for blob, slot in found.shared.renames.items():
        slots.setdefault(slot, set()).add(net.devices[blob])
    assert all(len(devices) == 1 for devices in slots.values())
    assert found.shared.statistics.bytes_before == sum(map(net.size_of, net.blobs))
    assert found.shared.statistics.bytes_after == sum(
        max(net.size_of(blob.name) for blob in slot) for slot in found.slots
    )
    assert found.shared.statistics.bytes_after <= found.shared.statistics.bytes_before


@given(st.integers(0, 10**6))
def test_blobs_of_a_slot_are_used_one_after_the_other(seed: int) -> None:
    net = random_net(seed)
    found = share_by_interference(net)
    users = touches(_in_order(net, found.order))
    for slot in found.slots:
        for former, latter in pairwise(slot):
            assert max(users[former.name]) < min(users[latter.name])


def test_a_training_net_shares_all_blobs_except_external_ones() -> None:
    net = training_net(5, scope="")
    for algorithm in ("greedy", "optimal"):
        found = share_by_interference(net, algorithm=algorithm)
        assert found.shared.statistics.bytes_after < found.shared.statistics.bytes_before
        assert set(net.externals) <= set(found.shared.net.blobs)


def test_a_slot_has_the_name_of_its_last_blob_and_the_size_of_its_largest() -> None:
    net = _net(_op("", "a"), _op("a", "b"), _op("b", "c"), _op("c", "d"), sizes={"a": 9, "b": 1, "c": 4, "d": 1})
    shared = share_by_interference(net, never_share=["d"]).shared
    assert shared.renames == {"a": "c", "c": "c"}
    assert shared.net.sizes == {"b": 1, "c": 9, "d": 1}
    assert (shared.statistics.bytes_before, shared.statistics.bytes_after) == (15, 11)


def test_any_valid_order_may_be_given_and_control_edges_move_with_their_ops() -> None:
    net = _net(_op("", "a"), _op("", "b"), _op("a", "c", after=(1,)))
    found = share_by_interference(net, order=[1, 0, 2])
    assert found.order == (1, 0, 2)
    assert [op.after for op in found.shared.net.ops] == [(), (), (0,)]


@pytest.mark.parametrize("order", [[2, 0, 1], [0, 1], [0, 0, 1], "random"])
def test_a_wrong_order_is_a_usage_error(order: str | list[int]) -> None:
    with pytest.raises(UsageError, match="order"):
        share_by_interference(_net(_op("", "a"), _op("a", "b"), _op("b", "c")), order=order)


def test_an_unknown_algorithm_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="choose one of greedy, optimal"):
        share_by_interference(_net(_op("", "a")), algorithm="best")
