"""The checks agree with memonger's own tests, and find every merge of live values."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import GraphError, UsageError, VerificationError
from lowtide.share import (
    BlobRange,
    NamedNet,
    NamedOp,
    rename_blobs,
    verify_assignments,
    verify_equality,
    verify_in_place,
)
from tests.oracles.named_nets import random_net, same_values


def _layers(*edges: tuple[str, str]) -> NamedNet:
    """Return a chain of layers with named parameters, and a sum of the last two."""
    ops = [NamedOp(kind="FC", inputs=(x, f"{y}_w", f"{y}_b"), outputs=(y,)) for x, y in edges]
    last = NamedOp(kind="Sum", inputs=(edges[-2][1], edges[-1][1]), outputs=("out",))
    return NamedNet(ops=(*ops, last))


def _with_parameters_of(net: NamedNet, other: NamedNet) -> NamedNet:
    pairs = zip(net.ops, other.ops, strict=True)
    return replace(net, ops=tuple(replace(op, inputs=(*op.inputs[:1], *model.inputs[1:])) for op, model in pairs))


SMALL = _layers(("data", "x"), ("x", "y"), ("x", "z"))
KEPT = replace(SMALL, external_inputs=("data",), external_outputs=("x",))
LONGER = _layers(("data", "x"), ("x", "y"), ("x", "z"), ("y", "u"), ("z", "v"))


def test_other_names_are_equal() -> None:
    verify_equality(SMALL, _layers(("data", "other_x"), ("other_x", "other_y"), ("other_x", "other_z")))


def test_names_used_again_after_the_last_read_are_equal() -> None:
    again = _layers(("data", "x"), ("x", "y"), ("x", "z"), ("y", "y"), ("z", "z"))
    verify_equality(LONGER, replace(again, ops=tuple(_with_parameters_of(again, LONGER).ops[:5]) + again.ops[5:]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SMALL, rename_blobs(SMALL, {"z": "y"})),
        (LONGER, rename_blobs(LONGER, {"z": "y"})),
        (SMALL, rename_blobs(SMALL, {"y_w": "z_w"})),
        (SMALL, replace(SMALL, ops=SMALL.ops[:2])),
        (SMALL, replace(SMALL, ops=(replace(SMALL.ops[0], kind="Conv"), *SMALL.ops[1:]))),
        (SMALL, replace(SMALL, ops=(replace(SMALL.ops[0], device="gpu"), *SMALL.ops[1:]))),
        (KEPT, rename_blobs(KEPT, {"out": "x"})),
        (KEPT, rename_blobs(KEPT, {"data": "d"})),
        (KEPT, rename_blobs(KEPT, {"y": "data"})),
    ],
    ids=["live", "longer", "parameters", "fewer ops", "kind", "device", "output", "input renamed", "input overwritten"],
)
def test_merged_live_values_and_changed_ops_are_not_equal(before: NamedNet, after: NamedNet) -> None:
    with pytest.raises(VerificationError):
        verify_equality(before, after)


@given(st.integers(0, 10**6))
def test_a_random_renaming_is_equal_only_if_every_op_reads_the_same_values(seed: int) -> None:
    net, rng = random_net(seed), random.Random(seed)
    inner = [blob for blob in net.blobs if blob not in net.externals]
    renamed = rename_blobs(net, {blob: rng.choice(inner) for blob in inner if rng.random() < 0.15})
    twice = any(len(set(op.outputs)) < len(op.outputs) for op in renamed.ops)
    if same_values(net, renamed, range(len(net.ops))) and not twice:
        verify_equality(net, renamed)
    else:
        with pytest.raises(VerificationError):
            verify_equality(net, renamed)


def test_new_use_in_place_is_found() -> None:
    verify_in_place(SMALL, rename_blobs(SMALL, {"x": "q", "out": "r"}))
    with pytest.raises(VerificationError, match=r"op 3 \(Sum\) uses other blobs in place"):
        verify_in_place(SMALL, rename_blobs(SMALL, {"out": "y"}))
    with pytest.raises(VerificationError, match="4 ops before and 3 after"):
        verify_in_place(SMALL, replace(SMALL, ops=SMALL.ops[:3]))


@pytest.mark.parametrize("used", [3, 4, None])
def test_neighbors_in_a_slot_that_overlap_are_found(used: int | None) -> None:
    verify_assignments([[BlobRange("a", 0, 2), BlobRange("b", 3, 5)], [BlobRange("c", 0, 9)]])
    with pytest.raises(VerificationError, match="slot 0: 'b' begins at 3 while 'a' is used until"):
        verify_assignments([[BlobRange("a", 0, used), BlobRange("b", 3, 5)]])
    with pytest.raises(VerificationError, match="slot 0: 'b' begins at -1"):
        verify_assignments([[BlobRange("a", 0, 2), BlobRange("b", None, 5)]])


def test_nets_with_impossible_sizes_or_control_edges_are_refused() -> None:
    with pytest.raises(GraphError, match=r"op 0 .* earlier ops"):
        NamedNet(ops=(NamedOp(kind="A", after=(0,)),))
    for size in (-1, 2**62, True, 1.5):
        with pytest.raises(GraphError, match="blob 'a': size"):
            NamedNet(ops=(), sizes={"a": size})
        with pytest.raises(UsageError, match="blob 'a': size"):
            BlobRange("a", 0, 1, size)
