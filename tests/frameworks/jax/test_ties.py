"""Ties, barriers and holds: bit-equal values of every type, an order that XLA follows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowtide
from lowtide.frameworks.jax.emit.run_plan import needed_places, run_plan
from lowtide.frameworks.jax.emit.ties import can_anchor, hold, recomputed_groups, tie
from lowtide.frameworks.jax.fitting.forms import segment_orders, unmodified_form
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.internals import keeps_barriers
from lowtide.frameworks.jax.model import JaxModel
from lowtide.frameworks.jax.reading.read import read_program
from tests.frameworks.jax.programs import blocks_arguments, blocks_step, close, temp_bytes

TYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("anchor", [np.nan, -0.0, np.inf], ids=str)
def test_a_tied_value_is_bit_equal_for_any_anchor(dtype: str, anchor: float) -> None:
    value = jnp.asarray([0.0, -0.0, 1.0, 0.5]).astype(dtype)
    for width in ("float32", "bfloat16"):
        tied = jax.jit(lambda x, g: tie(x, [g]))(value, jnp.full((2, 2), anchor, width))
        assert np.asarray(tied).tobytes() == np.asarray(value).tobytes()


def test_a_random_key_can_be_tied() -> None:
    key = jax.random.key(3)
    tied = jax.jit(lambda key, g: jax.random.key_data(tie(key, [g])))(key, jnp.ones(3))
    assert np.array_equal(tied, jax.random.key_data(key))


def test_recomputation_from_a_tied_value_is_not_merged() -> None:
    def twice(x: Any, g: Any, again: Any) -> Any:
        return jnp.cos(x @ x).sum(), jnp.sin(again(x) @ again(x)).sum(), g

    def products(again: Any) -> int:
        compiled = jax.jit(lambda x, g: twice(x, g, lambda x: again(x, g))).lower(jnp.ones((64, 64)), jnp.ones(4))
        return compiled.compile().as_text().count(" dot(")

    assert products(lambda x, g: x) == 1
    if jax.__version_info__ < (0, 11):  # later, XLA keeps barriers
        assert products(lambda x, g: jax.lax.optimization_barrier((x, g))[0]) == 1
    assert products(lambda x, g: tie(x, [g])) == 2


@pytest.mark.parametrize(
    ("shape", "dtype", "can"), [((2,), "float32", True), ((0,), "float32", False), ((2,), "int32", False)]
)
def test_only_floating_point_values_with_elements_are_anchors(shape: Any, dtype: str, can: bool) -> None:
    assert can_anchor(jnp.zeros(shape, dtype)) == can


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("anchor", [np.nan, -0.0, np.inf], ids=str)
def test_a_held_value_is_bit_equal_for_any_anchor(dtype: str, anchor: float) -> None:
    value = jnp.asarray([0.0, -0.0, 1.0, 0.5]).astype(dtype)
    held, other = jax.jit(lambda x, g: hold([x, g], [g]))(value, jnp.full((2, 2), anchor, "float32"))
    assert np.asarray(held).tobytes() == np.asarray(value).tobytes()
    assert np.asarray(other).tobytes() == np.full((2, 2), anchor, "float32").tobytes()


def test_a_random_key_can_be_held() -> None:
    key = jax.random.key(3)
    held = jax.jit(lambda key, g: jax.random.key_data(hold([key], [g])[0]))(key, jnp.ones(3))
    assert np.array_equal(held, jax.random.key_data(key))


def test_derivatives_and_batches_pass_through_a_hold() -> None:
    def held(x: Any) -> Any:
        return hold([x * x], [x])[0].sum()

    x = jnp.arange(6.0)
    assert np.array_equal(jax.jit(jax.grad(held))(x), 2 * x)
    assert np.array_equal(jax.jit(jax.vmap(jax.grad(held)))(jnp.stack([x, -x])), jnp.stack([2 * x, -2 * x]))
    assert np.array_equal(jax.jit(jax.jvp, static_argnums=0)(held, (x,), (x,))[1], (2 * x * x).sum())


def experts(x: Any, weights: Any) -> Any:
    """Return the sum of expert branches that XLA could compute all at once."""
    results = [jax.nn.gelu(x @ up) @ down for up, down in weights]
    return sum(x[:, n : n + 1] * result for n, result in enumerate(results))


def test_a_held_order_keeps_xla_from_computing_all_branches_first() -> None:
    drawn = np.random.default_rng(0)
    weights = [tuple(drawn.normal(size=shape).astype("float32") for shape in ((64, 256), (256, 64))) for _ in range(8)]
    arguments = drawn.normal(size=(512, 64)).astype("float32"), weights
    model = JaxModel((experts, arguments))
    plan = lowtide.minimize(model.graph).plan
    runs = plan.order().tolist()
    translation = read_program(model.program)

    def run(window: int | None) -> Any:
        return lambda *leaves: run_plan(translation, runs, leaves, window)

    leaves = jax.tree.leaves(arguments)
    assert temp_bytes(run(2), leaves) < 0.5 * temp_bytes(run(None), leaves)
    assert close(jax.jit(run(2))(*leaves)[0], jax.jit(experts)(*arguments))


@pytest.mark.parametrize("window", [1, 3, 50])
def test_a_held_plan_has_equal_values_for_any_window(window: int) -> None:
    arguments = blocks_arguments(64)
    model = JaxModel((blocks_step, arguments))
    planned = lowtide.minimize(model.graph, budget="50%", allow=["reorder", "share", "recompute"], effort="fast")
    translation, runs = read_program(model.program), planned.plan.order().tolist()
    results = jax.jit(lambda *leaves: run_plan(translation, runs, leaves, window))(*jax.tree.leaves(arguments))
    assert close(results, jax.tree.leaves(jax.jit(blocks_step)(*arguments)))


def test_recomputed_kernels_run_behind_one_barrier_per_group() -> None:
    arguments = blocks_arguments(64)
    leaves = jax.tree.leaves(arguments)
    form = unmodified_form(trace(blocks_step, arguments))
    order = max(segment_orders(form), key=lambda order: len(order.runs or ()))
    assert order.runs is not None
    groups = recomputed_groups(form.translation, order.runs)
    behind = form.following(order.runs, barriers=True)
    barriers = [each for each in jax.make_jaxpr(behind)(*leaves).eqns if each.primitive.name == "optimization_barrier"]
    assert len(groups) == len(barriers) > 1
    assert close(jax.jit(behind)(*leaves), jax.tree.leaves(jax.jit(blocks_step)(*arguments)))
    if keeps_barriers(jax.default_backend()):
        assert temp_bytes(behind, leaves) < 0.6 * temp_bytes(form.unplanned(), leaves)


def test_a_planned_order_begins_with_the_runs_that_the_first_results_need() -> None:
    arguments = blocks_arguments(blocks=2)
    form = unmodified_form(trace(lambda x, weights: blocks_step(weights, x)[::-1], arguments[::-1]))
    order = max(segment_orders(form), key=lambda order: len(order.runs or ()))
    assert order.runs is not None
    needed = needed_places(form.translation, order.runs, 1)
    assert 0 < len(needed) < len(set(order.runs)) < len(order.runs)
    hoisted = order.with_first(form, 1)
    assert hoisted.runs is not None
    assert hoisted.runs[: len(needed)] == tuple(order.runs[place] for place in needed)
    assert sorted(hoisted.runs) == sorted(order.runs)
    found = hoisted.of(form)(*jax.tree.leaves(arguments[::-1]))
    assert close(found, jax.tree.leaves(blocks_step(*arguments)[::-1]))
