"""Two real processes over gloo: the same losses as without lowtide, the same plans on both, and clear refusals."""

from pathlib import Path
from typing import Any

import pytest

from lowtide.torch import save_plans
from tests.frameworks.torch.two_ranks import run_two_ranks

SCRIPT = Path(__file__).parent / "one_rank.py"
WAYS = ["data_parallel", "fully_sharded", "tensor_parallel"]


@pytest.fixture(scope="module", name="ranks")
def ranks_fixture(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run both ranks and return the values that each wrote."""
    return run_two_ranks(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("way", WAYS)
def test_training_is_bit_equal_to_eager(ranks: list[dict[str, Any]], way: str) -> None:
    """Losses and parameters after three steps within 60 % of memory, on both ranks."""
    for rank in ranks:
        assert rank[way]["planned"]["values"] == rank[way]["eager"]["values"]
        assert rank[way]["planned"]["fingerprints"]


@pytest.mark.parametrize("way", WAYS)
def test_plans_are_the_same_on_both_ranks(ranks: list[dict[str, Any]], way: str) -> None:
    """The same graphs in the same order, and the same steps in each."""
    first, second = (rank[way]["planned"] for rank in ranks)
    assert first["fingerprints"] == second["fingerprints"]
    assert first["orders"] == second["orders"]


@pytest.mark.parametrize("way", WAYS)
def test_the_measured_peak_is_the_predicted_one_within_two_percent(ranks: list[dict[str, Any]], way: str) -> None:
    """Of forward and backward pass within 60 % of memory, on both ranks."""
    for rank in ranks:
        assert rank["measured over predicted"][way] == pytest.approx(1.0, abs=0.02)


def test_both_ranks_run_the_same_collectives_in_one_order(ranks: list[dict[str, Any]]) -> None:
    """Those of the program, and those that the plan runs again."""
    first, second = (rank["tensor_parallel"]["planned"] for rank in ranks)
    assert first["reruns"] > 0
    assert first["collectives"] == second["collectives"]
    for before, after in first["collectives"]:
        assert 0 < len(before) <= len(after)


def test_weights_are_gathered_again_bit_for_bit_where_the_budget_needs_it(ranks: list[dict[str, Any]]) -> None:
    """Every rank runs the same collectives again, first runs in the program's order, and predicts its peak."""
    first, second = (rank["regathered"] for rank in ranks)
    assert first["runs"] == second["runs"]
    assert list(dict.fromkeys(first["runs"])) == first["in the program"]
    assert len(first["runs"]) > len(first["in the program"])
    for found in (first, second):
        assert found["fits"]
        assert found["outputs equal"]
        assert found["measured over predicted"] == pytest.approx(1.0, abs=0.02)


def test_plans_saved_on_one_rank_are_followed_on_all(ranks: list[dict[str, Any]]) -> None:
    """Nothing is planned anew, and everything comes out as it did."""
    for rank in ranks:
        planned, loaded = rank["tensor_parallel"]["planned"], rank["loaded"]
        assert set(loaded["schedulers"]) == {"plan file"}
        assert {key: loaded[key] for key in ("values", "fingerprints", "orders")} == {
            key: planned[key] for key in ("values", "fingerprints", "orders")
        }


def test_inductors_kernels_get_one_plan_on_both_ranks(ranks: list[dict[str, Any]]) -> None:
    """The plan recomputes kernels, fits the budget and leaves the loss as it is."""
    first, second = (rank["kernels"]["planned"] for rank in ranks)
    assert [first[key] for key in ("fingerprint", "steps")] == [second[key] for key in ("fingerprint", "steps")]
    for found in (first, second):
        assert "turn" in found["kinds"]
        assert found["reruns"]
        assert found["fits"]
        assert found["difference"] < 1e-5


def test_a_saved_plan_of_kernels_is_followed_on_both_ranks(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        planned, followed = rank["kernels"]["planned"], rank["kernels"]["followed"]
        assert followed["scheduler"] == "plan file"
        assert [followed[key] for key in ("fingerprint", "steps")] == [planned[key] for key in ("fingerprint", "steps")]


def test_different_kernels_are_refused_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        assert f"rank {number} is about to plan another '" in rank["kernels"]["refused"]
        assert f"' than rank {1 - number};" in rank["kernels"]["refused"]


def test_a_program_without_a_saved_plan_is_refused(ranks: list[dict[str, Any]]) -> None:
    """The message names folder and graph, and says what to do."""
    for rank in ranks:
        assert "plans is for '<lambda> (one_rank.py:" in rank["no plan"]
        assert "leave the plans out" in rank["no plan"]
        assert rank["no plan"].startswith("FingerprintError: ")


def test_different_programs_around_a_collective_are_refused_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    """Each names the other in one line; without collectives, or where the user says so, ranks may differ."""
    for number, rank in enumerate(ranks):
        assert f"rank {number} is about to plan another '" in rank["another program"]
        assert f"' than rank {1 - number};" in rank["another program"]
        assert "\n" not in rank["another program"]
        assert not rank["another program, anyway"]


def test_a_rank_whose_partner_plans_nothing_goes_on_with_a_warning(ranks: list[dict[str, Any]]) -> None:
    """Nobody waits for ever for a rank that compiles nothing."""
    assert "planned without comparing it: rank 1 planned nothing for 0 s" in ranks[0]["alone"]
    assert not ranks[1]["alone"]


def test_saving_plans_before_there_are_any_is_refused(tmp_path: Path) -> None:
    """One line says what to do first."""
    from lowtide.core.errors import UsageError
    from lowtide.frameworks.torch.planning.programs import forget_programs

    forget_programs()
    with pytest.raises(UsageError, match="call the compiled function first"):
        save_plans(tmp_path)
