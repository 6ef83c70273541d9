"""`fit`: equal values with fewer temp bytes; effects, custom derivatives and checkpoints are kept."""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowtide.jax
from lowtide.core.errors import UsageError
from tests.frameworks.jax.programs import (
    blocks_arguments,
    blocks_loss,
    blocks_step,
    close,
    equal_bits,
    recurrent_arguments,
    recurrent_step,
    run_on_devices,
    temp_bytes,
)


@pytest.fixture(scope="module")
def arguments() -> tuple[Any, Any]:
    return blocks_arguments()


@pytest.fixture(scope="module")
def fitted_loss(arguments: Any) -> lowtide.jax.FittedFunction:
    return lowtide.jax.fit(blocks_loss, "50%", example_args=arguments)


@pytest.fixture(scope="module")
def fitted_step(arguments: Any) -> lowtide.jax.FittedFunction:
    return lowtide.jax.fit(blocks_step, "40%", example_args=arguments)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("budget", ["70%", 0.25])
def test_a_training_step_fits_with_equal_values(arguments: Any, budget: str | float) -> None:
    fitted = lowtide.jax.fit(blocks_step, budget, example_args=arguments)
    assert fitted.fits
    assert fitted.temp_bytes <= fitted.budget_bytes < fitted.unmodified_temp_bytes
    assert close(fitted(*arguments), jax.jit(blocks_step)(*arguments))


def test_temp_bytes_of_a_fitted_step_hold_in_an_outer_jit(
    arguments: Any, fitted_step: lowtide.jax.FittedFunction
) -> None:
    assert temp_bytes(fitted_step, arguments, fitted_step.compiler_options) == fitted_step.temp_bytes
    assert close(jax.jit(fitted_step)(*arguments), jax.jit(blocks_step)(*arguments))


def test_a_missed_budget_returns_the_best_candidate_with_a_shortfall(arguments: Any) -> None:
    weights, x = arguments
    fitted = lowtide.jax.fit(blocks_step, "1%", example_args=(weights[:3], x))
    assert not fitted.fits
    assert fitted.temp_bytes == min(each.temp_bytes for each in fitted.tried) < fitted.unmodified_temp_bytes
    assert fitted.shortfall is not None
    assert fitted.floor is not None
    assert fitted.budget_bytes < fitted.floor.at_least <= min(each.predicted_bytes or 1e9 for each in fitted.tried)
    assert fitted.floor.sentence in fitted.shortfall
    assert "misses the budget" in str(fitted)


def test_a_function_that_fits_is_unmodified_and_needs_no_arrays() -> None:
    structs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), blocks_arguments())
    fitted = lowtide.jax.fit(blocks_step, "100%", example_args=structs)
    assert [each.name for each in fitted.tried] == ["unmodified"]
    assert fitted.temp_bytes == fitted.unmodified_temp_bytes


def test_a_budget_in_bytes_includes_arguments_and_results_unless_transient(arguments: Any) -> None:
    total = lowtide.jax.fit(blocks_step, "1 GiB", example_args=arguments)
    transient = lowtide.jax.fit(blocks_step, "1 GiB", example_args=arguments, transient=True)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves((arguments, arguments[0])))
    assert transient.budget_bytes == 2**30
    assert 2**30 - total.budget_bytes == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize("temporaries", [True, False])
def test_a_budget_below_arguments_and_results_names_the_least_budget(temporaries: bool) -> None:
    given = (jax.ShapeDtypeStruct((64, 64), "float32"),)

    def function(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(x @ x) ** 2) if temporaries else x * 2

    fitted = lowtide.jax.fit(function, "1 KiB", example_args=given, argnums=())
    assert not fitted.fits
    assert fitted.budget_bytes == 0
    shortfall = str(fitted.shortfall)
    assert "arguments and results alone take" in shortfall
    least = int(shortfall.split()[-2])
    assert lowtide.jax.fit(function, f"{least} B", example_args=given, argnums=()).fits
    assert not lowtide.jax.fit(function, f"{least - 1} B", example_args=given, argnums=()).fits


def test_without_recompute_only_schedulers_and_held_orders_are_tried(arguments: Any) -> None:
    fitted = lowtide.jax.fit(blocks_step, "10%", example_args=arguments, allow=["reorder"])
    names = {each.name.removesuffix(", scheduled for least memory") for each in fitted.tried}
    assert {"unmodified", "planned, held by 4"} <= names
    assert all(name.startswith(("unmodified", "planned, held by")) for name in names)
    assert fitted.result is None or fitted.result.reruns == 0


def test_other_shapes_start_a_new_search(fitted_step: lowtide.jax.FittedFunction) -> None:
    smaller = blocks_arguments(64)
    assert close(fitted_step(*smaller), jax.jit(blocks_step)(*smaller))


def test_a_donated_argument_stays_donated() -> None:
    step = jax.jit(blocks_step, donate_argnums=0)
    fitted = lowtide.jax.fit(step, "60%", example_args=blocks_arguments())
    assert fitted.found.best.figures.alias_bytes == fitted.found.unmodified.alias_bytes > 0
    weights, x = jax.tree.map(jnp.asarray, blocks_arguments())
    fitted(weights, x)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(weights))


def test_recomputed_random_numbers_are_the_same() -> None:
    def step(x: Any, key: Any) -> Any:
        def loss(x: Any) -> Any:
            for each in jax.random.split(key, 4):
                x = x + jnp.tanh(x @ jnp.ones((16, 16))) * jax.random.bernoulli(each, 0.5, x.shape)
            return jnp.mean(x**2)

        return jax.grad(loss)(x)

    arguments = (blocks_arguments()[1], jax.random.key(0))
    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.temp_bytes < fitted.unmodified_temp_bytes
    assert close(fitted(*arguments), jax.jit(step)(*arguments))


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("steps", "budget", "how"),
    [(24, "75%", "scans saving"), (23, "75%", "scans saving"), (96, "18%", "scan in chunks")],
    ids=["fewer values per iteration", "prime length", "chunks"],
)
def test_a_scan_saves_less_with_equal_values(steps: int, budget: str, how: str) -> None:
    """Chunks are bit-equal. A scan that saves less is fused differently by some releases of XLA."""
    arguments = recurrent_arguments(steps)
    fitted = lowtide.jax.fit(recurrent_step, budget, example_args=arguments)
    assert fitted.fits
    assert how in fitted.found.best.name
    are_equal = equal_bits if how == "scan in chunks" else close
    assert are_equal(fitted(*arguments), jax.jit(recurrent_step)(*arguments))


def test_gradients_of_a_fitted_loss_follow_its_plan(arguments: Any, fitted_loss: lowtide.jax.FittedFunction) -> None:
    assert fitted_loss.fits
    step = jax.value_and_grad(fitted_loss)
    assert temp_bytes(step, arguments, fitted_loss.compiler_options) <= fitted_loss.budget_bytes
    assert close(jax.jit(step)(*arguments), jax.jit(jax.value_and_grad(blocks_loss))(*arguments))
    assert close(fitted_loss(*arguments), blocks_loss(*arguments))


def test_a_fitted_loss_has_correct_gradients_of_other_arguments(
    arguments: Any, fitted_loss: lowtide.jax.FittedFunction
) -> None:
    expected = jax.jit(jax.grad(blocks_loss, argnums=1))(*arguments)
    assert close(jax.jit(jax.grad(fitted_loss, argnums=1))(*arguments), expected)


def test_a_fitted_loss_composes_with_vmap_and_scan(arguments: Any, fitted_loss: lowtide.jax.FittedFunction) -> None:
    weights, x = arguments
    batches = np.stack([x, 2 * x])

    def each(loss: Any) -> Any:
        return jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights, batches)

    def summed(loss: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(weights, x)), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), batches)[0]

    for program in (each, summed):
        assert close(jax.jit(lambda run=program: run(fitted_loss))(), jax.jit(lambda run=program: run(blocks_loss))())


_ON_A_MESH = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec
import lowtide.jax
from tests.frameworks.jax.programs import blocks_arguments, blocks_loss, close, temp_bytes
mesh = Mesh(np.array(jax.devices()), ("data",))
assert mesh.size == 8
def over_devices(loss, **more):
    def step(weights, x):
        return jax.lax.pmean(jax.grad(loss)(weights, x), "data")
    parts = PartitionSpec(), PartitionSpec("data")
    return jax.shard_map(step, mesh=mesh, in_specs=parts, out_specs=parts[0], **more)
weights, x = blocks_arguments(4096)
expected = jax.jit(over_devices(blocks_loss, check_vma=False))(weights, x)
inside = lowtide.jax.fit(blocks_loss, "50%", example_args=(weights, x[:512]))
assert close(jax.jit(over_devices(inside, check_vma=False))(weights, x), expected)
around = lowtide.jax.fit(over_devices(blocks_loss, check_vma=False), "50%", example_args=(weights, x))
assert around.fits and close(around(weights, x), expected)
typed = lowtide.jax.fit(over_devices(blocks_loss), "60%", example_args=(weights, x))
assert typed.fits and close(typed(weights, x), jax.jit(over_devices(blocks_loss))(weights, x))
print(around.temp_bytes)
"""


def test_a_step_on_eight_devices_fits_inside_and_around_a_shard_map() -> None:
    assert int(run_on_devices(_ON_A_MESH, 8)) > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lowtide.jax.fit(blocks_step, "much", example_args=blocks_arguments()), "as a size"),
        (lambda: lowtide.jax.fit(blocks_step, "50%", example_args=(1, 2, 3)), "cannot be traced"),
        (lambda: lowtide.jax.fit(blocks_loss, "50%", example_args=blocks_arguments(), argnums=7), "argnums"),
        (lambda: lowtide.jax.fit(3, "50%", example_args=()), "give a function"),  # pyright: ignore
    ],
    ids=["budget", "examples", "argnums", "not a function"],
)
def test_a_bad_call_raises_a_message_of_one_line(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_static_arguments_raise_with_the_workaround() -> None:
    power = jax.jit(lambda n, x: x**n, static_argnums=0)
    with pytest.raises(UsageError, match=r"functools\.partial"):
        lowtide.jax.fit(power, "50%", example_args=(2, jnp.ones(3)))


@jax.custom_vjp
def clipped(x: Any) -> Any:
    """Return `x`, with a clipped gradient."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1e-4, 1e-4),))


@jax.custom_jvp
def odd(x: Any) -> Any:
    """Return the sine, with a custom derivative of five."""
    return jnp.sin(x)


odd.defjvps(lambda tangent, _, x: 5 * tangent)


def _loss_through(weights: Any, x: Any, through: Any) -> Any:
    for into, out in weights:
        x = x + through(jnp.tanh(x @ into)) @ out
    return jnp.mean(x**2)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("through", [clipped, odd], ids=["custom_vjp", "custom_jvp"])
def test_custom_derivatives_are_kept(through: Any) -> None:
    weights, x = blocks_arguments()
    arguments = (weights[:4], x)

    def step(weights: Any, x: Any) -> Any:
        return jax.value_and_grad(_loss_through)(weights, x, through)

    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.temp_bytes < fitted.unmodified_temp_bytes
    assert close(fitted(*arguments), jax.jit(step)(*arguments))


def test_effects_happen_once_and_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    weights, x = blocks_arguments()
    arguments = (weights[:4], x)

    def step(weights: Any, x: Any) -> Any:
        jax.debug.print("first {}", x[0, 0] > 99, ordered=True)
        loss, gradients = jax.value_and_grad(lambda weights: _loss_through(weights, x, jnp.tanh))(weights)
        jax.debug.print("second {}", loss < 0, ordered=True)
        return loss, gradients

    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.temp_bytes < fitted.unmodified_temp_bytes
    fitted(*arguments)
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:3] == ["first False", "second False", ""]


def test_a_users_checkpoints_are_one_of_the_candidates() -> None:
    arguments = blocks_arguments()

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = x
            for into, out in weights:
                y = jax.checkpoint(lambda y, into=into, out=out: y + jnp.tanh(y @ into) @ out)(y)
            return jnp.mean(y**2)

        return jax.grad(loss)(weights)

    fitted = lowtide.jax.fit(step, "100%", example_args=arguments)
    assert fitted.unmodified_temp_bytes == temp_bytes(step, arguments)
    least = temp_bytes(step, arguments, {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"})
    assert lowtide.jax.fit(step, f"{least} B", example_args=arguments, transient=True).fits


@pytest.mark.parametrize(("example", "number"), [(2.0, jnp.float32(2.0)), (jnp.float32(2.0), 2.0)])
def test_a_number_keeps_its_influence_on_dtypes(example: Any, number: Any) -> None:
    """A Python number leaves a bfloat16 array as it is, an array of float32 does not, whichever was the example."""
    x = jnp.ones((8, 8), jnp.bfloat16)
    fitted = lowtide.jax.fit(lambda x, scale: jnp.tanh(x @ x) * scale, "100%", example_args=(x, example))
    assert fitted(x, number).dtype == jax.jit(lambda x, scale: x * scale)(x, number).dtype


def test_gradients_of_and_through_complex_arrays_are_kept() -> None:
    def loss(weights: Any, x: Any) -> tuple[Any, Any]:
        mixed = x @ weights["complex"] + weights["real"]
        return jnp.sum(jnp.abs(mixed) ** 2), mixed

    def summed(function: Any, weights: Any, x: Any) -> Any:
        value, mixed = function(weights, x)
        return value + jnp.sum(jnp.imag(mixed))

    x = jnp.arange(64.0).reshape(8, 8) / 64
    weights = {"real": x, "complex": x + 2j * x}
    fitted = lowtide.jax.fit(loss, "100%", example_args=(weights, x), argnums=0)
    found, expected = (jax.grad(functools.partial(summed, each))(weights, x) for each in (fitted, loss))
    assert close(found, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_resident_memory_is_measured_with_keys_of_another_kind() -> None:
    key = jax.random.key(0, impl="rbg")
    measured = lowtide.jax.measure_compiled(
        lambda key: jax.random.normal(key, (64, 64)) @ jnp.ones((64, 64)), (key,), resident=True
    )
    assert measured.resident_bytes is not None
