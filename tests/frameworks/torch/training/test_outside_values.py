"""A planned step reads the clock, files and the environment as the plain loop does."""

import datetime
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.frameworks.torch.capture.state.outside import CLOCK, ENVIRONMENT, FILES, sources_of
from tests.frameworks.torch.training.test_python_state import train

SCALE_FILE = Path("scale.txt")


def by_environment(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a loss that an environment variable scales."""
    return nn.functional.cross_entropy(model(rows), labels) * float(os.environ.get("TEST_SCALE", "1"))


def by_file(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a loss that the number in a file scales."""
    return nn.functional.cross_entropy(model(rows), labels) * float(SCALE_FILE.read_text(encoding="utf-8"))


def by_clock(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a loss that the hour of a moment scales, which depends on the time zone."""
    return nn.functional.cross_entropy(model(rows), labels) * (1.0 + time.localtime(0).tm_hour)


def set_environment(number: int, model: nn.Module) -> None:
    os.environ["TEST_SCALE"] = "1" if number < 2 else "0.5"


def write_file(number: int, model: nn.Module) -> None:
    SCALE_FILE.write_text("1" if number < 2 else "0.5", encoding="utf-8")


def set_time_zone(number: int, model: nn.Module) -> None:
    os.environ["TZ"] = "UTC" if number < 2 else "UTC-5"
    time.tzset()


CASES: dict[str, tuple[Any, Any, str]] = {
    "environment": (by_environment, set_environment, r"os.environ\['TEST_SCALE'\]"),
    "file": (by_file, write_file, "files"),
    "clock": (by_clock, set_time_zone, "the clock"),
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_SCALE", "1")
    monkeypatch.setenv("TZ", "UTC")
    write_file(0, nn.Identity())
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", CASES)
def test_a_new_value_from_outside_leads_to_a_new_program_and_one_warning(
    name: str, digest: Callable[[Any], str]
) -> None:
    loss, change, named = CASES[name]
    expected, _ = train(False, loss=loss, change=change)
    with pytest.warns(UserWarning, match=named) as raised:
        found, _ = train(True, loss=loss, change=change)
    assert len(raised) == 1
    assert digest(found) == digest(expected)


def test_a_variable_that_the_step_sets_is_set_in_each_step_only() -> None:
    def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        os.environ["TEST_SCALE"] = os.environ["TEST_SCALE"] + "1"
        return model(rows).sum()

    model, rows = nn.Linear(3, 3), torch.ones(2, 3)
    step = lt.training_step(model, loss, torch.optim.SGD(model.parameters()), (rows,))
    assert os.environ["TEST_SCALE"] == "1"
    step(rows)
    assert os.environ["TEST_SCALE"] == "11"


def _imports_the_clock() -> float:
    import time

    return time.perf_counter()


def _has_a_date() -> Any:
    return datetime.datetime.now(tz=datetime.UTC)


def _looks_for_a_file() -> bool:
    return os.path.exists("x")


def _opens_a_file() -> str:
    with open("x", encoding="utf-8") as file:
        return file.read()


def _asks_the_environment() -> str | None:
    return os.getenv("HOME")


def _joins_names() -> str:
    return os.path.join("a", "b")


@pytest.mark.parametrize(
    ("function", "sources"),
    [
        (_imports_the_clock, {CLOCK}),
        (_has_a_date, {CLOCK}),
        (_looks_for_a_file, {FILES}),
        (_opens_a_file, {FILES}),
        (_asks_the_environment, {ENVIRONMENT}),
        (_joins_names, set[str]()),
    ],
)
def test_the_sources_of_a_function_are_found_by_the_names_in_its_code(function: Any, sources: set[str]) -> None:
    assert sources_of(function) == sources
