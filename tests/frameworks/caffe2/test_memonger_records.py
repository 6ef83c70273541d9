"""Results equal those of memonger on 500 random NetDefs, recorded by tests/oracles/record_memonger_netdefs.py."""

import gzip
import json
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

from lowtide.caffe2 import NetDef, memonger, write_net
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.nets.named import named_net
from lowtide.share import NamedNet
from tests.oracles.named_nets import waits

DATA = Path(__file__).parents[2] / "data" / "share" / "memonger_netdefs.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


@cache
def _net(content: str) -> NetDef:
    return read_net(bytes.fromhex(content), "a record")


def _answers() -> list[tuple[dict[str, Any], str, Any, dict[str, Any]]]:
    cases: list[tuple[dict[str, Any], str, Any, dict[str, Any]]] = []
    for record in RECORDS:
        for key, answer in record["answers"].items():
            if " " in key and not _mended(named_net(_net(record["net"])), answer):
                order, algorithm = key.split()
                cases.append((record, order, memonger.AssignmentAlgorithm[algorithm], answer))
    return cases


def _mended(net: NamedNet, answer: dict[str, Any]) -> bool:
    """Return whether memonger's answer is wrong: an in-place op runs before other readers, or a blob is dead before it
    is written."""
    before, order = waits(net), answer["order"]
    if any(not before[op] <= set(order[:place]) for place, op in enumerate(order)):
        return True
    return any(defined > used for slot in answer["slots"] for _, defined, used, _ in slot)


def test_binary_and_text_equal_the_output_of_protocol_buffers() -> None:
    for record in RECORDS:
        net = _net(record["net"])
        if record["text"] is not None:
            assert read_net(record["text"].encode(), "text") == net
            assert write_net(_fresh(net), "net.pbtxt").decode() == record["text"]
        assert write_net(_fresh(net), "net.pb").hex() == record["net"]


def _fresh(net: NetDef) -> NetDef:
    """Return an equal net without source file."""
    made = deepcopy(net)
    for message in (made, *made.op, *(argument for op in made.op for argument in op.arg)):
        message.source = None
    return made


def _given(order: list[int], _graph: Any) -> list[int]:
    return order


def test_orders_ranges_slots_and_nets_are_memongers() -> None:
    """For nets with in-place ops, use memonger's order: its graph lacks edges, which changes ties."""
    compared = ordered = 0
    for record, order, algorithm, answer in _answers():
        if algorithm != memonger.AssignmentAlgorithm.GREEDY:
            continue
        in_place = any(set(op.input) & set(op.output) for op in _net(record["net"]).op)
        given: list[int] = answer["order"]
        ordering: Any = partial(_given, given) if in_place else getattr(memonger, order)
        ours = memonger.optimize_interference(
            _net(record["net"]), record["never_share"], ordering, record["sizes"], algorithm
        )
        assert [int(op.name) for op in ours.net.op] == answer["order"]
        ranges = memonger.compute_ranges([_net(record["net"]).op[place] for place in answer["order"]])
        assert [[name, *blob] for name, blob in ranges.items()] == answer["ranges"]
        assert _slots(ours.assignments) == _slots(answer["slots"])
        assert ours.blob_assignments == answer["renames"]
        assert memonger.get_memory_usage(ours.assignments) == answer["bytes"]
        assert write_net(ours.net, "net.pb").hex() == answer["net"]
        compared += 1
        ordered += not in_place
    assert compared >= 500
    assert ordered >= 250


def _slots(slots: Any) -> list[list[str]]:
    """Return names in slots. For unused blobs, memonger's ranges differ."""
    return sorted([name for name, *_ in slot] for slot in slots)


def test_searched_slots_are_never_larger_than_memongers() -> None:
    compared = 0
    for record, _, algorithm, answer in _answers():
        ours = memonger.optimize_interference(
            _net(record["net"]),
            record["never_share"],
            lambda _, order=answer["order"]: order,
            record["sizes"],
            memonger.AssignmentAlgorithm.DYNAMIC_PROGRAMMING,
        )
        assert memonger.get_memory_usage(ours.assignments) <= answer["bytes"]
        assert set(memonger.compute_ranges(ours.net.op)) <= set(memonger.compute_ranges(_net(record["net"]).op))
        compared += algorithm != memonger.AssignmentAlgorithm.GREEDY
    assert compared >= 200
