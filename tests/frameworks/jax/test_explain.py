"""`explain`, `suggest_donation` and `measure_compiled`."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import lowtide
import lowtide.jax
from lowtide.core.units import format_bytes
from lowtide.frameworks.jax.model import JaxModel
from tests.frameworks.jax.programs import (
    blocks_arguments,
    blocks_loss,
    blocks_step,
    recurrent_arguments,
    recurrent_step,
    temp_bytes,
)

XLA_ORDERS = jax.__version_info__ >= (0, 11)
"""Whether XLA's CPU compiler reorders ops to need less memory, also if lowtide leaves the order to it."""
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")


def test_arrays_at_the_peak_add_up_and_have_source_lines() -> None:
    peak = lowtide.jax.explain(blocks_step, blocks_arguments())
    assert sum(each.holder.size_bytes for each in peak.held) == peak.peak_bytes
    assert "programs.py:" in str(peak)
    assert "x @ into" in str(peak)
    assert str(peak.held[0]).strip().startswith("128.0 KiB  float32[512,64]")


def test_arrays_in_loop_iterations_have_lines_of_the_body() -> None:
    """In the first program a scan saves for backward; in the second, each iteration has its own backward pass."""

    def accumulated(weights: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(blocks_loss)(weights, x)), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), batches)[0]

    weights, x = blocks_arguments()
    saved = lowtide.jax.explain(recurrent_step, recurrent_arguments(12))
    inside = lowtide.jax.explain(accumulated, (weights, jnp.stack([x, x])))
    for peak in (saved, inside):
        assert sum(each.holder.size_bytes for each in peak.held) == peak.peak_bytes
    assert "state = jnp.tanh(x @ weights" in str(saved)
    in_loop = [each for each in inside.held if each.within is not None]
    assert sum(each.holder.size_bytes for each in in_loop) > 0.8 * inside.peak_bytes
    assert all(each.type != "scratch" for each in inside.held)
    assert "in an iteration of scan" in str(inside)


def test_arrays_of_one_line_are_summed_in_one_row() -> None:
    peak = lowtide.jax.explain(blocks_step, blocks_arguments())
    same_line = [each for each in peak.held if each.type == "float32[512,64]" and "x @ into" in (each.source or "")]
    total = sum(each.holder.size_bytes for each in same_line)
    assert f"{format_bytes(total)}  {len(same_line)} of float32[512,64]" in str(peak)
    assert len(str(peak).splitlines()) < 3 * len(peak.held)


def test_matching_arguments_are_suggested_until_they_are_donated() -> None:
    arguments = blocks_arguments()
    suggested = lowtide.jax.suggest_donation(blocks_step, arguments)
    assert suggested.argnums == (0,)
    assert suggested.saved_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(arguments[0]))
    assert "donate_argnums=(0,)" in str(suggested)
    donating = jax.jit(blocks_step, donate_argnums=0)
    assert lowtide.jax.suggest_donation(donating, arguments).argnums == ()


def test_one_array_in_an_argument_is_suggested_by_its_path() -> None:
    def update(state: Any, x: Any) -> Any:
        return state["mean"] * 0.9 + x.sum(0) + state["count"]

    structs = {"mean": jax.ShapeDtypeStruct((16,), "float32"), "count": jax.ShapeDtypeStruct((), "float32")}
    suggested = lowtide.jax.suggest_donation(update, (structs, jax.ShapeDtypeStruct((8, 16), "float32")))
    assert suggested.argnums == ()
    assert suggested.others == ("[0]['mean']",)


@ON_LINUX
def test_prediction_xla_and_allocator_agree() -> None:
    arguments = blocks_arguments(batch=32_768)
    measured = lowtide.jax.measure_compiled(blocks_step, arguments, resident=True)
    expected = measured.figures.temp_bytes + measured.figures.output_bytes
    assert measured.resident_bytes is not None
    assert measured.predicted_bytes >= 0.9 * measured.figures.temp_bytes
    if not XLA_ORDERS:
        assert measured.predicted_bytes == pytest.approx(measured.figures.temp_bytes, rel=0.1)
    assert measured.resident_bytes == pytest.approx(expected, rel=0.2)
    assert measured.assigned is not None
    assert measured.assigned.temp_bytes == measured.figures.temp_bytes
    assert measured.assigned.unused_bytes < measured.assigned.temp_bytes < measured.assigned.reserved_bytes
    assert all(word in str(measured) for word in ("XLA reports", "buffer assignment"))
    assert "allocated" in str(measured)


@ON_LINUX
def test_compiled_memory_of_a_jaxpr_and_its_plan_agrees_with_predictions() -> None:
    arguments = blocks_arguments(batch=32_768)
    model = JaxModel(jax.make_jaxpr(blocks_step)(*arguments))
    planned = lowtide.minimize(model.graph, budget="60%", allow=["reorder", "share", "recompute"], effort="fast")
    before, after = model.compiled_memory(planned.plan)
    assert before.temp_bytes == temp_bytes(blocks_step, arguments) >= after.temp_bytes
    assert XLA_ORDERS or before.temp_bytes > after.temp_bytes
    for each in (before, after):
        assert each.assigned_bytes == pytest.approx(each.total_bytes, rel=0.01)
        assert each.predicted_bytes == pytest.approx(each.total_bytes, rel=0.4 if XLA_ORDERS else 0.3)
        assert each.resident_bytes == pytest.approx(each.total_bytes - each.argument_bytes, rel=0.2)


def test_a_fitted_function_is_explained_and_measured_under_its_plan() -> None:
    fitted = lowtide.jax.fit(blocks_step, "40%", example_args=blocks_arguments())
    measured = lowtide.jax.measure_compiled(fitted)
    assert measured.figures.temp_bytes == fitted.temp_bytes
    assert measured.predicted_bytes == fitted.predicted_bytes == lowtide.jax.explain(fitted).peak_bytes
