"""Rounding allowed on the command line: the pages say what is equal to rounding, and that is no failure."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Command
from tests.frameworks.torch.reading.measured_scratch import one_thread

ROUNDED = ("--allow", "reorder,share,rounding", "--effort", "fast")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of bfloat16 on two threads take memory of their own on some CPUs."""
    with one_thread():
        yield


def test_a_step_to_rounding_succeeds_and_both_pages_say_how_near_it_is(lowtide: Command, programs: str) -> None:
    done = lowtide("optimize", f"{programs}:half_precision", "--measure", *ROUNDED)
    assert done.code == 0
    assert "results          equal up to rounding" in done.stdout
    assert "outputs equal    up to rounding: they differ by " in done.stdout
    fields = json.loads(lowtide("optimize", f"{programs}:half_precision", "--measure", *ROUNDED, "--json").stdout)
    assert (fields["to_rounding"], fields["outputs_near"], fields["outputs_equal"]) == (True, True, False)
    assert 0 < fields["largest_difference"] < 0.1
    page = lowtide("report", f"{programs}:half_precision", "--measure", *ROUNDED, "--text")
    assert "outputs equal up to rounding" in page.stdout


def test_a_curve_has_no_use_for_rounding(lowtide: Command, programs: str) -> None:
    done = lowtide("plan", f"{programs}:half_precision", "--curve", *ROUNDED)
    assert done.code == 2
    assert "technique 'rounding' would be ignored: --curve supports only recomputation" in done.stderr
