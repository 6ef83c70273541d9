"""The example of one rank of a large run: captured on fakes, and planned below what checkpointing of blocks costs."""

from dataclasses import replace
from typing import Any

import pytest

import lowtide
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph
from tests.scripts import load_example

PROFILE = "eager@h100"


def test_logits_of_a_rank_are_never_whole_where_rounding_is_allowed() -> None:
    """Nothing runs on the device "meta", so that no trial says which chunks give equal bits."""
    frontier = load_example("frontier")
    model = replace(frontier.MODELS["tiny"], layers=2, vocabulary=16384)
    settings = {"data": 4, "tensor": 1, "length": 1024}
    (whole, exact), (chunks, rounded) = (frontier.plan_rank(model, **settings, rounding=each) for each in (False, True))
    space = whole.spaces[0].name
    logits = 1024 * 16384 * 2
    assert max(whole.buffer(index).size_bytes for index in range(whole.n_buffers)) >= logits
    assert max(chunks.buffer(index).size_bytes for index in range(chunks.n_buffers)) < logits / 2
    assert rounded.to_rounding
    assert rounded.peak_bytes[space] < 0.6 * exact.peak_bytes[space]
    assert any("no device 'meta'" in sentence for sentence in chunks.unmodeled)


def _step(frontier: Any, model: str, policy: str) -> Graph:
    half_as_deep = replace(frontier.MODELS[model], layers=2)
    return frontier.captured(half_as_deep, data=4, tensor=2, length=512, policy=policy)


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("model", "policy"), [("tiny", "full"), ("tiny", "selective"), ("tiny-mixture", "every second")]
)
def test_a_plan_within_the_peak_of_checkpoints_by_hand_costs_no_more(model: str, policy: str) -> None:
    """Checkpoints gather weights again with all else of a block; a plan only what pays, by the same prices."""
    frontier = load_example("frontier")
    plain, by_hand = _step(frontier, model, "none"), _step(frontier, model, policy)
    space = plain.spaces[0].name
    assert plain.persistent_bytes() == by_hand.persistent_bytes()
    seconds, with_checkpoints = (float(price(graph, PROFILE).seconds.sum()) for graph in (plain, by_hand))
    peak = lowtide.minimize(by_hand, allow=["share"], effort="fast").baseline_peak_bytes[space]
    result = lowtide.minimize(
        plain,
        budget=f"{peak + plain.persistent_bytes()[space]} B",
        allow=["reorder", "share", "recompute"],
        costs=PROFILE,
        effort="fast",
    )
    assert result.shortfall is None
    assert seconds + result.extra_cost <= with_checkpoints
    assert (by_hand.ranks > 1).sum() > (plain.ranks > 1).sum()
