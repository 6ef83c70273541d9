"""Plans for less, and between, until the kernels that Inductor makes of them fit."""

from collections.abc import Callable

from lowtide.frameworks.torch.compile.fusion.attempts import TRIES, Attempt, least_excess

BUDGET = 1000


def _tried(needs: Callable[[int], int], least: int = 0) -> tuple[Attempt[int], list[int]]:
    """Return what is taken where plans for so many bytes need others once fused, and the goals that were tried."""
    goals: list[int] = []

    def attempt(target: int) -> Attempt[int]:
        goals.append(target)
        is_free, planned = needs(target) >= 2 * BUDGET, max(target, least)
        return Attempt(target, target, needs(target) - BUDGET, planned, is_least=target <= least, is_free=is_free)

    return least_excess(attempt(BUDGET), attempt), goals


def test_a_goal_that_overshoots_is_followed_by_one_between_that_fits() -> None:
    found, goals = _tried(lambda target: target + 200 if target > 900 else target)
    assert goals[:3] == [1000, 800, 900]
    assert found.target == 900


def test_a_first_plan_that_fits_is_compiled_once() -> None:
    found, goals = _tried(lambda target: target - 300)
    assert goals == [1000]
    assert found.excess_bytes == -300


def test_a_target_between_that_does_not_fit_does_not_take_the_place_of_one_that_does() -> None:
    found, goals = _tried(lambda target: target + 200 if target > 800 else target)
    assert found.target == 800
    assert len(goals) == TRIES
    assert all(800 <= target <= 1000 for target in goals)


def test_where_a_step_down_does_not_help_the_next_one_is_larger() -> None:
    """What sets the peak of the kernels is not what sets the plan's: they need the same until the plan comes to it."""
    found, goals = _tried(lambda target: 1020 if target > 920 else target)
    assert goals == [1000, 980, 940, 900]
    assert found.target == 900


def test_where_nothing_fits_the_least_excess_is_taken() -> None:
    found, _ = _tried(lambda target: max(target, 1100) + 1, least=950)
    assert found.excess_bytes == 101


def test_a_few_bytes_that_are_left_are_not_worth_a_compilation() -> None:
    found, goals = _tried(lambda target: target + 20 if target > 980 else target - 10)
    assert goals == [1000, 980]
    assert found.target == 980


def test_where_the_least_plan_loses_to_fusion_what_it_saves_goals_between_are_tried() -> None:
    found, goals = _tried(lambda target: 1600 if target < 1300 else target + 20, least=1200)
    assert goals == [1000, 1400, 1310, 1265]
    assert found.target == 1310


def test_where_goals_above_the_least_plan_need_more_it_is_taken() -> None:
    found, goals = _tried(lambda target: 1400 if target == BUDGET else 1500, least=1200)
    assert found.target == BUDGET
    assert goals == [1000, 1300, 1350]


def test_where_there_is_no_other_plan_the_first_is_taken() -> None:
    first = Attempt(BUDGET, BUDGET, 200, BUDGET, is_least=False, is_free=False)
    assert least_excess(first, lambda target: None) is first
