"""Training steps of a model with FSDP2 on two real processes: plain results, one plan, state on the host."""

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.torch.two_ranks import run_two_ranks

WAYS = [
    *("ordered", "recomputed", "on the host", "mixed precision", "checkpoints around", "checkpoints inside"),
    *("accumulated", "accumulated on the host", "uneven", "uneven, accumulated", "free memory"),
]


@pytest.fixture(scope="module", name="ranks")
def ranks_fixture(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run both ranks and return the values that each wrote."""
    return run_two_ranks(Path(__file__).parent / "one_rank.py", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("way", WAYS)
def test_training_is_bit_equal_to_the_plain_loop(ranks: list[dict[str, Any]], way: str) -> None:
    """Losses, evaluations between steps, parameters and state, on both ranks."""
    for rank in ranks:
        assert rank[way]["equal"] == {"losses": True, "tensors": True}
        assert rank[way]["collectives"] > 0


@pytest.mark.parametrize("way", WAYS)
def test_both_ranks_have_one_plan(ranks: list[dict[str, Any]], way: str) -> None:
    """The ranks have other batches."""
    first, second = (rank[way] for rank in ranks)
    assert first["plan"] == second["plan"]


def test_state_moves_to_the_host_within_a_byte_budget(ranks: list[dict[str, Any]]) -> None:
    """One plan recomputes and keeps parts of state or parameters on the host."""
    for rank in ranks:
        found = rank["on the host"]
        assert found["fits"]
        assert found["reruns"] > 0
        assert found["host bytes"] > 0


def test_gradients_of_shards_wait_on_the_host(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["accumulated on the host"]["waiting"] > 0


def test_training_resumes_from_a_distributed_checkpoint(ranks: list[dict[str, Any]]) -> None:
    """Written and read with state on the host, with frozen weights and uneven parts, as by the plain loop."""
    assert all(rank["resumed"] for rank in ranks)


def test_ranks_with_other_budgets_are_refused(ranks: list[dict[str, Any]]) -> None:
    """Each rank names the other in one line, and none waits forever in a collective."""
    for number, rank in enumerate(ranks):
        assert f"rank {number} is about to plan another '" in rank["refused"]
        assert "\n" not in rank["refused"]
