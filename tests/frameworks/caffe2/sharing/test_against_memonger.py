"""Results equal those of memonger on random nets, recorded by tests/oracles/record_memonger_sharing.py."""

import gzip
import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from lowtide.core.errors import VerificationError
from lowtide.share import (
    NamedNet,
    NamedOp,
    longest_path_order,
    release_when_used,
    rename_blobs,
    share_by_interference,
    topological_order,
    verify_equality,
    verify_in_place,
)
from tests.oracles.named_nets import same_values, waits

DATA = Path(__file__).parents[3] / "data" / "share" / "memonger_sharing.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


def _net(record: dict[str, Any], **fields: Any) -> NamedNet:
    ops = (NamedOp(kind=kind, inputs=tuple(inputs), outputs=tuple(outputs)) for kind, inputs, outputs in record["ops"])
    return NamedNet(ops=tuple(ops), sizes=record["sizes"] or {}, **fields)


def _plain(net: NamedNet) -> list[list[Any]]:
    return [[op.kind, list(op.inputs), list(op.outputs)] for op in net.ops]


def _mended(net: NamedNet, answer: dict[str, Any], never_share: list[str]) -> bool:
    """Return whether memonger's answer is wrong: an in-place op runs before other readers, or a blob is dead before it
    is written."""
    before, order = waits(net), answer["order"]
    if any(not before[op] <= set(order[:place]) for place, op in enumerate(order)):
        return True
    return any(
        name not in never_share and defined > used for slot in answer["slots"] for name, defined, used, _ in slot
    )


def _interference(algorithm: str) -> list[tuple[NamedNet, dict[str, Any], dict[str, Any]]]:
    cases = (
        (_net(record), record, answer)
        for record in RECORDS
        for key, answer in record["answers"].items()
        if key.endswith(algorithm)
    )
    return [case for case in cases if not _mended(case[0], case[2], case[1]["never_share"])]


def test_greedy_interference_gives_memongers_net() -> None:
    cases = _interference("greedy")
    assert len(cases) >= 400
    for net, record, answer in cases:
        ours = share_by_interference(net, record["never_share"], order=answer["order"])
        assert _plain(ours.shared.net) == answer["ops"]


def test_optimal_slots_are_never_larger_than_memongers() -> None:
    """memonger's recursion is not optimal: it extends one of several best assignments."""
    cases = _interference("dynamic_programming")
    assert len(cases) >= 250
    better = 0
    for net, record, answer in cases:
        ours = share_by_interference(net, record["never_share"], order=answer["order"], algorithm="optimal")
        theirs = sum(max(size or 1 for *_, size in slot) for slot in answer["slots"])
        assert ours.optimal
        assert ours.shared.statistics.bytes_after <= theirs
        better += ours.shared.statistics.bytes_after < theirs
    assert better < len(cases) // 10


@pytest.mark.parametrize(("name", "order"), [("topological", topological_order), ("longest-path", longest_path_order)])
def test_both_orders_are_memongers_where_those_are_valid(name: str, order: Callable[[NamedNet], list[int]]) -> None:
    compared = 0
    for record in RECORDS:
        net = _net(record)
        answer = record["answers"].get(f"{name} greedy")
        if answer is not None and not any(set(op.inputs) & set(op.outputs) for op in net.ops):
            assert order(net) == answer["order"]
            compared += 1
    assert compared >= 50


def _frees_sorted(ops: list[list[Any]]) -> list[list[Any]]:
    """Return ops with the frees after each op sorted."""
    groups = groupby(ops, key=lambda op: op[0] == "Free")
    return [op for frees, group in groups for op in (sorted(group) if frees else group)]


def test_frees_are_at_the_positions_of_memonger() -> None:
    for record in RECORDS:
        net = _net(record, external_outputs=tuple(record["outputs"]))
        ours = _plain(release_when_used(net, record["never_share"]))
        assert _frees_sorted(ours) == _frees_sorted(record["answers"]["released"])


def _holds(check: Any, *nets: NamedNet) -> bool:
    try:
        check(*nets)
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize("equal", [True, False])
def test_equality_of_renamed_nets_is_memongers(equal: bool) -> None:
    """memonger misses merged outer blobs and merged outputs of one op, which change the values."""
    n_agreed = 0
    for record in (record for record in RECORDS if record["answers"]["equal"] == equal):
        before = _net(record)
        after = rename_blobs(before, record["merged"])
        if _holds(verify_equality, before, after) == equal:
            n_agreed += 1
        else:
            assert equal
            merged = any(len(set(op.outputs)) < len(op.outputs) for op in after.ops)
            assert merged or not same_values(before, after, range(len(after.ops)))
    assert n_agreed >= 90


def test_new_use_in_place_is_found_where_memonger_finds_it() -> None:
    for record in RECORDS:
        before = _net(record)
        after = rename_blobs(before, record["merged"])
        assert _holds(verify_in_place, before, after) == record["answers"]["same_in_place"]
