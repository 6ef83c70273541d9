"""Every blob that may be freed is freed once, after its last use."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lowtide.share import NamedNet, NamedOp, release_when_used
from tests.oracles.named_nets import random_net, waits


def _op(kind: str, inputs: str, outputs: str) -> NamedOp:
    return NamedOp(kind=kind, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()))


def _frees(net: NamedNet) -> list[str]:
    return [op.inputs[0] for op in net.ops if op.kind == "Free"]


ALIASED = NamedNet(
    ops=(
        _op("FC", "data", "x"),
        _op("FC", "x", "y"),
        _op("FC", "x", "z"),
        _op("FC", "y", "u"),
        _op("Alias", "u", "u_alias"),
        _op("Sum", "z u", "out"),
    ),
    external_inputs=("data",),
    external_outputs=("out",),
)


def test_external_outputs_and_aliases_are_not_freed() -> None:
    released = release_when_used(ALIASED)
    assert [(op.kind, *op.inputs) for op in released.ops] == [
        ("FC", "data"),
        ("FC", "x"),
        ("FC", "x"),
        ("Free", "x"),
        ("FC", "y"),
        ("Free", "y"),
        ("Alias", "u"),
        ("Sum", "z", "u"),
        ("Free", "z"),
    ]


def test_blobs_that_were_freed_already_are_not_freed_again() -> None:
    released = release_when_used(ALIASED)
    assert release_when_used(released) == released


def test_the_caller_may_keep_blobs_and_select_others() -> None:
    assert _frees(release_when_used(ALIASED, ["x"])) == ["y", "z"]
    assert _frees(release_when_used(ALIASED, selected=lambda blob: blob != "y")) == ["x", "z"]


def test_a_write_after_the_last_read_is_waited_for() -> None:
    net = NamedNet(ops=(_op("A", "", "x"), _op("B", "x", "y"), _op("C", "", "x"), _op("D", "y", "z")))
    assert [op.kind for op in release_when_used(net).ops] == ["A", "B", "C", "Free", "D", "Free"]


@given(st.integers(0, 10**6))
def test_nothing_is_freed_twice_or_used_after_it_was_freed(seed: int) -> None:
    net = random_net(seed)
    released = release_when_used(net)
    freed: set[str] = set()
    for op in released.ops:
        assert not freed & {*op.inputs, *op.outputs}
        if op.kind == "Free":
            freed.add(op.inputs[0])
    assert not freed & net.externals
    written = {blob for op in net.ops for blob in op.outputs}
    read_first = {b for i, op in enumerate(net.ops) for b in op.inputs if all(b not in o.outputs for o in net.ops[:i])}
    read = {blob for op in net.ops for blob in op.inputs}
    assert freed == (written & read) - read_first - net.externals


@given(st.integers(0, 10**6))
def test_the_other_ops_stay_as_they_are_and_wait_for_the_same_ops(seed: int) -> None:
    net = random_net(seed)
    released = release_when_used(net)
    places = [place for place, op in enumerate(released.ops) if op.kind != "Free"]
    assert [replace(released.ops[place], after=()) for place in places] == [replace(op, after=()) for op in net.ops]
    after = waits(released)
    assert all(
        {places[other] for other in before} <= after[place] for before, place in zip(waits(net), places, strict=True)
    )
