"""The rules of memonger's C++ part are reproduced on 1,200 nets, and its results never need less than lowtide's.

Its slots are recorded by tests/oracles/record_memonger_fresh.py, which makes the random nets from seeds.
"""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import pytest

from lowtide.caffe2 import NetDef, memonger
from lowtide.core.errors import VerificationError
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.nets.named import named_net
from lowtide.frameworks.caffe2.sharing.memonger_rules import one_pass_renames, token_renames
from lowtide.share import NamedNet, rename_blobs, verify_equality, verify_in_place
from tests.oracles.named_nets import touches, waits
from tests.oracles.random_netdefs import random_netdef
from tests.oracles.record_memonger_fresh import ops_of

DATA = Path(__file__).parents[2] / "data" / "memonger_fresh.json.gz"
GRADIENTS = [f"gradients{activations}{sizes}" for activations in ("", " activations") for sizes in ("", " sizes")]
Slots = set[frozenset[str]]


@cache
def _records() -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(DATA.read_bytes()))


def _random_nets(way: str) -> Iterator[tuple[int, NetDef, Slots]]:
    for record in _records():
        if record.get(way) is not None:
            seed = record["seed"]
            yield seed, random_netdef(random.Random(seed), ops_of(seed)).net, set(map(frozenset, record[way]))


def _training_nets(way: str) -> Iterator[tuple[NetDef, dict[str, list[int]], Slots]]:
    for record in _records():
        if "net" in record:
            net = read_net(bytes.fromhex(record["net"]), "net")
            yield net, record["shapes"], set(map(frozenset, record[way]))


def _slots(renames: Mapping[str, str]) -> Slots:
    slots: dict[str, set[str]] = {}
    for blob, name in renames.items():
        slots.setdefault(name, set()).add(blob)
    return {frozenset(slot) for slot in slots.values() if len(slot) > 1}


def _slots_of(net: NetDef, made: NetDef) -> Slots:
    pairs = zip(net.op, made.op, strict=True)
    return _slots(
        {
            blob: name
            for one, other in pairs
            for blob, name in zip([*one.input, *one.output], [*other.input, *other.output], strict=True)
        }
    )


def _need(net: NamedNet, slots: Iterable[frozenset[str]], sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return blobs and bytes."""
    all_slots = [*slots, *({blob} for blob in set(net.blobs).difference(*slots))]
    return len(all_slots), sum(max(sizes[blob] for blob in slot) for slot in all_slots)


def _keeps_values(net: NamedNet, slots: Slots) -> bool:
    renamed = rename_blobs(net, {blob: f"slot {place}" for place, slot in enumerate(slots) for blob in slot})
    try:
        verify_equality(net, renamed)
        verify_in_place(net, renamed)
    except VerificationError:
        return False
    return True


def _is_safe_in_parallel(net: NamedNet, slots: Slots) -> bool:
    """Return whether blobs that share are never in use at once in any execution."""
    before, users = waits(net), touches(net)

    def follows(one: str, other: str) -> bool:
        return all(a in before[b] for a in users[one] for b in users[other])

    return all(follows(a, b) or follows(b, a) for slot in slots for a, b in combinations(slot, 2))


def _compare(net: NamedNet, ours: Slots, theirs: Slots, sizes: Mapping[str, int], found: Counter[str]) -> None:
    need, most = _need(net, ours, sizes), _need(net, theirs, sizes)
    assert need[0] <= most[0]
    assert need[1] <= most[1]
    found["less"] += need < most
    found["compared"] += 1


def _any_sizes(net: NamedNet, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    return {blob: rng.choice((1, 2, 8, 8, 50)) for blob in net.blobs}


def test_one_pass_reproduces_memonger_and_never_needs_more_for_any_sizes() -> None:
    found: Counter[str] = Counter()
    for seed, net, theirs in _random_nets("fast"):
        net.type = "simple"
        named = named_net(net)
        assert _slots(one_pass_renames(named, named.externals)) == theirs
        if not _keeps_values(named, theirs):  # it forgets that a blob is written once more
            found["wrong"] += 1
            continue
        ours = _slots_of(net, memonger.optimize_inference_fast(net, []))
        _compare(named, ours, theirs, _any_sizes(named, seed), found)
    assert found["compared"] >= 730
    assert found["wrong"] <= 270
    assert found["less"] >= 460


@pytest.mark.parametrize(("way", "n_heads"), [("dag", 2), ("dag from one", 1)])
def test_branch_rules_reproduce_memonger_and_never_need_more_for_any_sizes(way: str, n_heads: int) -> None:
    found: Counter[str] = Counter()
    for seed, net, theirs in _random_nets(way):
        named = named_net(net)
        heads, shareable = net.external_input[:n_heads], set(named.blobs) - named.externals
        renames = token_renames(named, heads, range(len(named.ops)), shareable)
        assert renames is not None
        found["followed"] += _slots(renames) == theirs
        if not (_is_safe_in_parallel(named, theirs) and _keeps_values(named, theirs)):
            found["wrong"] += 1  # its tokens miss who else writes a blob
            continue
        ours = _slots_of(net, memonger.optimize_inference_for_dag(net, heads))
        _compare(named, ours, theirs, _any_sizes(named, seed), found)
    assert found["followed"] >= found["compared"] + found["wrong"] - 2  # there it depends on its hash tables
    assert found["compared"] >= 700
    assert found["less"] >= 450


@pytest.mark.parametrize("way", GRADIENTS)
def test_gradient_rules_reproduce_memonger_and_never_need_more(way: str) -> None:
    found: Counter[str] = Counter()
    for net, shapes, theirs in _training_nets(way):
        sizes = {blob: prod(shape) for blob, shape in shapes.items()}
        kept = [blob for blob in net.external_output if blob != "loss"]
        named = named_net(net, sizes if "sizes" in way else None)
        with_activations = "activations" in way
        shareable = {blob for blob in named.blobs if blob.endswith("_grad")} - set(kept)
        ops = [place for place, op in enumerate(named.ops) if shareable & {*op.inputs, *op.outputs}]
        if with_activations:
            layers = [blob for op in named.ops for blob in op.outputs if f"{blob}_w" in op.inputs]
            shareable.update(layers[:-2])
        assert _slots(token_renames(named, ["loss"], ops, shareable) or {}) == theirs
        if not _is_safe_in_parallel(named, theirs):
            assert with_activations  # readers of an activation that are no gradient ops hold no token
            found["races"] += 1
            continue
        ours = memonger.share_grad_blobs(
            net,
            ["loss"],
            kept,
            "",
            share_activations=with_activations,
            blob_shapes=shapes if "sizes" in way else None,
        )
        _compare(named, _slots_of(net, ours), theirs, sizes, found)
    assert found["compared"] >= 150
    assert found["less"] >= 120
