"""No net needs more than the result of memonger's C++ part, recorded by record_memonger_recycling.py.

Wrong results of memonger are proven wrong: values differ, or blobs in use at once share.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import pytest

from lowtide.caffe2 import NetDef, memonger
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.nets.named import named_net
from tests.oracles.named_nets import same_values, touches, waits

DATA = Path(__file__).parents[2] / "data"


@cache
def _records(name: str) -> Any:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def _cases(kind: str) -> Iterator[tuple[str, NetDef, NetDef, dict[str, list[int]]]]:
    """Yield the way, the net, memonger's result, and the shapes of blobs."""
    for run in _records("caffe2_runs"):
        for way, made in _records("memonger_recycling")[run["name"]].items():
            if way.split()[0] == kind and made is not None:
                shapes = run["shapes"] | {blob: shape for blob, (_, shape, _) in run["inputs"].items()}
                yield way, read_net(bytes.fromhex(run["net"]), way), read_net(bytes.fromhex(made), way), shapes


def _renames(net: NetDef, made: NetDef) -> dict[str, str]:
    pairs = zip(net.op, made.op, strict=True)
    return {a: b for one, other in pairs for a, b in zip(_blobs(one), _blobs(other), strict=True)}


def _blobs(op: Any) -> list[str]:
    return [*op.input, *op.output]


def _need(net: NetDef, made: NetDef, shapes: dict[str, list[int]]) -> tuple[int, int]:
    """Return blobs and bytes."""
    largest: dict[str, int] = {}
    for blob, name in _renames(net, made).items():
        largest[name] = max(largest.get(name, 0), 4 * prod(shapes[blob]))
    return len(largest), sum(largest.values())


def _keeps_values(net: NetDef, made: NetDef) -> bool:
    return same_values(named_net(net), named_net(made), range(len(net.op)))


def _is_safe_in_parallel(net: NetDef, made: NetDef) -> bool:
    """Return whether blobs that share are never in use at once in any execution."""
    before, users = waits(named_net(net)), touches(named_net(net))

    def follows(one: str, other: str) -> bool:
        return all(a in before[b] for a in users[one] for b in users[other])

    pairs = combinations(_renames(net, made).items(), 2)
    return all(follows(a, b) or follows(b, a) for (a, slot), (b, other) in pairs if slot == other)


def _compare(need: tuple[int, int], theirs: tuple[int, int], found: Counter[str], where: str) -> None:
    assert need[0] <= theirs[0], where
    assert need[1] <= theirs[1], where
    found["less"] += need < theirs
    found["compared"] += 1


def test_one_pass_never_needs_more() -> None:
    found: Counter[str] = Counter()
    for number, (_, net, made, shapes) in enumerate(_cases("fast")):
        if not _keeps_values(net, made):  # a blob that it forgot is written once more
            found["wrong"] += 1
            continue
        ours = memonger.optimize_inference_fast(net, [])
        _compare(_need(net, ours, shapes), _need(net, made, shapes), found, f"net {number}")
    assert found["compared"] >= 200
    assert found["wrong"] <= 6
    assert found["less"] >= 100


def test_sharing_across_branches_never_needs_more() -> None:
    """memonger's tokens miss the second writer of a blob."""
    found: Counter[str] = Counter()
    for number, (_, net, made, shapes) in enumerate(_cases("dag")):
        if not _is_safe_in_parallel(net, made):
            writes = Counter(blob for op in net.op for blob in op.output)
            shared = Counter(_renames(net, made).values())
            assert any(writes[blob] > 1 and shared[name] > 1 for blob, name in _renames(net, made).items())
            found["races"] += 1
            continue
        ours = memonger.optimize_inference_for_dag(net, net.external_input[:1])
        _compare(_need(net, ours, shapes), _need(net, made, shapes), found, f"net {number}")
    assert found["compared"] >= 188
    assert found["races"] <= 8
    assert found["less"] >= 140


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_gradients_never_need_more(activations: bool, sized: bool) -> None:
    found: Counter[str] = Counter()
    for way, net, made, shapes in _cases("gradients"):
        if way != f"gradients{' activations' * activations}{' sizes' * sized}":
            continue
        assert _is_safe_in_parallel(net, made)
        losses = [blob for blob in net.external_output if blob.startswith("loss")]
        ours = memonger.share_grad_blobs(
            net,
            losses,
            set(net.external_output) - set(losses),
            "",
            share_activations=activations,
            blob_shapes=shapes if sized else None,
        )
        _compare(_need(net, ours, shapes), _need(net, made, shapes), found, net.name)
    assert found["compared"] == found["less"] == 5
