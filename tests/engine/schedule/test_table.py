"""Schedulers are found by name."""

import dataclasses
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from lowtide.core.errors import UsageError
from lowtide.engine.schedule import scheduler, scheduler_names, table
from lowtide.engine.schedule.scheduler import Given

ROWS = tuple(table.SCHEDULERS)


def _offer(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Install one more scheduler by an entry point."""
    offered = EntryPoints([EntryPoint(name, value, table.ENTRY_POINT_GROUP)])
    monkeypatch.setattr(table, "entry_points", lambda group: offered.select(group=group))


def test_names_are_in_row_order() -> None:
    assert scheduler_names()[: len(ROWS)] == ROWS


@pytest.mark.parametrize("name", ROWS)
def test_every_scheduler_is_a_frozen_dataclass_that_documents_its_source(name: str) -> None:
    found = scheduler(name)
    assert dataclasses.is_dataclass(found)
    assert found.__dataclass_params__.frozen
    assert found == type(found)()
    for part in ("Source:", "Complexity:"):
        assert part in (type(found).__doc__ or "")


def test_an_unknown_name_is_a_usage_error_that_lists_all_names() -> None:
    with pytest.raises(UsageError, match=r"unknown scheduler 'lmpf'.*given, .*longest-path"):
        scheduler("lmpf")


def test_third_parties_add_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, "acme", "lowtide.engine.schedule.scheduler:Given")
    assert scheduler_names() == (*ROWS, "acme")
    assert scheduler("acme") == Given()


def test_third_parties_cannot_take_over_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, "lpmf", "lowtide.engine.schedule.scheduler:Given")
    assert scheduler_names() == ROWS
    assert scheduler("lpmf") != Given()


def test_a_third_party_that_cannot_be_loaded_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, "acme", "no_such_module:Thing")
    with pytest.raises(UsageError, match=r"'acme' \(no_such_module:Thing\) cannot be loaded: ModuleNotFoundError"):
        scheduler("acme")
