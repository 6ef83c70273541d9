"""`compare` and `optimize --measure` on a JAX function given by its name."""

import json
import sys
from typing import Any

import jax
import pytest
from click.testing import CliRunner

from lowtide.cli.compare import command as compare
from lowtide.cli.optimize import command as optimize
from tests.frameworks.jax.programs import blocks_arguments, blocks_step, temp_bytes

BY_NAME = "tests.frameworks.jax.test_verbs:program"


def program() -> Any:
    """Return a jitted step and structs of its example arguments."""
    return jax.jit(blocks_step), jax.eval_shape(blocks_arguments)


def test_compare_shows_xlas_order_and_buffer_assignment() -> None:
    shown = CliRunner().invoke(compare, [BY_NAME, "--json"])
    assert shown.exit_code == 0, shown.stderr
    compiled = json.loads(shown.stdout)["compiled"]
    peaks = {row["scheduler"]: row["peak_bytes"]["device"] for row in compiled["rows"]}
    reserved = compiled["reserved"]
    assert reserved["temporary_bytes"] == temp_bytes(*program())
    assert reserved["peak_bytes"] == peaks["given"] >= peaks["search"]
    extra = sum(each["extra_bytes"] for each in reserved["differences"])
    assert extra == reserved["reserved_bytes"] - reserved["peak_bytes"]
    text = CliRunner().invoke(compare, [BY_NAME]).stdout
    assert "After compilation" in text
    assert "XLA's buffer assignment:" in text


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_optimize_shows_four_figures_of_both_compiled_functions() -> None:
    shown = CliRunner().invoke(
        optimize, [BY_NAME, "--measure", "--allow", "reorder,share,recompute", "--budget", "70%"]
    )
    assert shown.exit_code == 0, shown.output
    for which in ("compiled, unmodified", "compiled, planned"):
        lines = shown.stdout.partition(which)[2].splitlines()[1:5]
        assert [line.split()[0] for line in lines] == ["predicted", "XLA", "reserved", "allocated"]
