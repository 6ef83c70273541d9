"""Scans and loops that recompute instead of saving: equal values, less memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide.jax
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import FlatProgram, run_program
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.scans.bodies import with_planned_bodies
from lowtide.frameworks.jax.scans.pairs import scan_pairs
from lowtide.frameworks.jax.scans.saving import saving_program
from tests.examples import examples
from tests.frameworks.jax.programs import blocks_arguments, blocks_loss, close, equal_bits, temp_bytes

WIDTH, LENGTH = 8, 6


def normal(key: int, *shape: int) -> Any:
    """Return random numbers from a fixed seed."""
    return (0.4 * np.random.default_rng(key).normal(size=shape)).astype(np.float32)


def flat(function: Any, arguments: Any) -> FlatProgram:
    """Return a function as a flat program."""
    traced = trace(function, arguments)
    return flatten(traced.jaxpr, traced.name)


def layers_step(weights: Any, x: Any) -> Any:
    """Return loss and gradients of layers in a scan that also collects a value per layer."""

    def loss(weights: Any) -> Any:
        def layer(x: Any, weights: Any) -> Any:
            hidden = jax.nn.gelu(x @ weights["up"])
            x = x + jnp.tanh(hidden @ weights["down"])
            return x, jnp.square(x).mean()

        x_out, seen = jax.lax.scan(layer, x, weights)
        return jnp.square(x_out).mean() + seen.sum()

    return jax.value_and_grad(loss)(weights)


def layers_arguments(layers: int = LENGTH, batch: int = 64) -> Any:
    """Return stacked weights and a batch."""
    weights = {"up": normal(1, layers, WIDTH, 4 * WIDTH), "down": normal(2, layers, 4 * WIDTH, WIDTH)}
    return weights, normal(3, batch, WIDTH)


@examples(5)
@given(share=st.floats(0, 1))
def test_a_scan_saves_within_a_limit_or_its_least_with_equal_values(share: float) -> None:
    arguments = layers_arguments()
    program = flat(layers_step, arguments)
    saved_bytes = sum(pair.saved_bytes for pair in scan_pairs(program))
    saving = saving_program(program, int(share * saved_bytes))
    assert saving is not None
    assert saving.saved_bytes <= share * saved_bytes or saving.is_least
    assert saving.saved_bytes >= LENGTH * arguments[1].nbytes  # the state of every iteration, or its source
    leaves = jax.tree.leaves(arguments)
    results = jax.jit(lambda *leaves: run_program(saving.program, leaves))(*leaves)
    assert close(results, jax.tree.leaves(jax.jit(layers_step)(*arguments)))


def test_shared_saved_values_are_saved_once_without_a_limit() -> None:
    """JAX saves several values that are one array or derive from one."""
    program = flat(layers_step, layers_arguments())
    saved_bytes = sum(pair.saved_bytes for pair in scan_pairs(program))
    saving = saving_program(program, saved_bytes)
    assert saving is not None
    assert saving.saved_bytes < saved_bytes
    assert not saving.is_least


def test_scans_that_save_less_are_a_pair() -> None:
    program = flat(layers_step, layers_arguments())
    saving = saving_program(program, 0)
    assert saving is not None
    assert saving.is_least
    (pair,) = scan_pairs(saving.program)
    assert pair.saved_bytes == saving.saved_bytes


def accumulated(weights: Any, batches: Any) -> Any:
    """Return gradients summed over small batches, with a backward pass in each iteration."""

    def add(total: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(blocks_loss)(weights, x)
        return (total[0] + loss, jax.tree.map(jnp.add, total[1], gradients)), None

    return jax.lax.scan(add, (0.0, jax.tree.map(jnp.zeros_like, weights)), batches)[0]


def test_a_step_that_accumulates_gradients_fits_by_planned_bodies() -> None:
    weights, x = blocks_arguments()
    arguments = weights, np.stack([x, 2 * x, 3 * x])
    fitted = lowtide.jax.fit(accumulated, "50%", example_args=arguments)
    assert fitted.fits
    assert "bodies planned" in fitted.found.best.name
    assert close(fitted(*arguments), jax.jit(accumulated)(*arguments))


def test_a_scan_over_layers_in_a_scan_over_batches_saves_less() -> None:
    weights, x = layers_arguments()

    def step(weights: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, layers_step(weights, x)[1]), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), batches)[0]

    arguments = weights, np.stack([x, 2 * x])
    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.fits
    assert close(fitted(*arguments), jax.jit(step)(*arguments))


def _descent(weights: Any, x: Any) -> Any:
    """Return the result of a while loop that follows a gradient."""

    def body(state: Any) -> Any:
        count, x = state
        return count + 1, x - 0.1 * jax.grad(lambda x: blocks_loss(weights, x))(x)

    return jax.lax.while_loop(lambda state: state[0] < 2, body, (0, x))[1]


def _branches(weights: Any, x: Any) -> Any:
    """Return the result of one of two branches, the first with a backward pass."""
    return jax.lax.cond(x[0, 0] > 0, lambda: jax.grad(lambda x: blocks_loss(weights, x))(x), lambda: -x)


@pytest.mark.parametrize("function", [_descent, _branches], ids=["while", "cond"])
@pytest.mark.parametrize("window", [None, 4], ids=["left to XLA", "held"])
def test_planned_bodies_of_loops_and_branches_need_less_with_equal_values(function: Any, window: int | None) -> None:
    arguments = blocks_arguments()
    program = flat(function, arguments)
    planned = with_planned_bodies(program, temp_bytes(function, arguments) // 2, window)
    assert planned is not None
    leaves = jax.tree.leaves(arguments)
    run = jax.jit(lambda *leaves: run_program(planned, leaves))
    assert close(run(*leaves)[0], jax.jit(function)(*arguments))
    lowest = min(temp_bytes(run, leaves), temp_bytes(run, leaves, {"xla_cpu_scheduler_type": SMALL}))
    assert lowest < 0.75 * temp_bytes(function, arguments)


def test_scans_in_scans_get_as_low_as_with_checkpoints_by_hand() -> None:
    def loss_of(wrap: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            return jnp.tanh(state * 1.001 + jnp.sin(state) * 0.01), None

        def block(state: Any, _: Any) -> Any:
            return jax.lax.scan(turn, state, None, length=20)[0], None

        return jax.value_and_grad(lambda state: jnp.sum(jax.lax.scan(wrap(block), state, None, length=6)[0] ** 2))

    arguments = (normal(7, 100, 100),)
    plain = loss_of(lambda block: block)
    saving = saving_program(flat(plain, arguments), 0)
    assert saving is not None
    planned = with_planned_bodies(saving.program, temp_bytes(loss_of(jax.checkpoint), arguments) // 2, None)
    assert planned is not None
    run = jax.jit(lambda *leaves: run_program(planned, leaves))
    assert close(run(*arguments), jax.tree.leaves(jax.jit(plain)(*arguments)))
    lowest = min(temp_bytes(run, arguments), temp_bytes(run, arguments, {"xla_cpu_scheduler_type": SMALL}))
    assert lowest < 0.75 * temp_bytes(loss_of(jax.checkpoint), arguments)


def test_stacks_that_nothing_reads_are_left_out() -> None:
    def first_of_two(x: Any) -> Any:
        def turn(total: Any, each: Any) -> Any:
            return total + each, (total * 2, jnp.sin(total))

        return jax.lax.scan(turn, 0.0, x)[1][0]

    (scan,) = (each for each in flat(first_of_two, (normal(8, 9),)).equations if each.kind == "scan")
    assert len(scan.outputs) == 2


SMALL = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"


def test_effects_in_a_loop_happen_once_per_iteration(capfd: pytest.CaptureFixture[str]) -> None:
    def printing(weights: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            jax.debug.print("iteration {}", total > 1e9, ordered=True)
            return total + jax.grad(lambda x: blocks_loss(weights, x))(x).sum(), None

        return jax.lax.scan(add, 0.0, batches)[0]

    weights, x = blocks_arguments(blocks=6)
    arguments = weights, np.stack([x, 2 * x])
    planned = with_planned_bodies(flat(printing, arguments), temp_bytes(printing, arguments) // 2, None)
    assert planned is not None
    results = jax.jit(lambda *leaves: run_program(planned, leaves))(*jax.tree.leaves(arguments))
    jax.effects_barrier()
    assert capfd.readouterr().out == "iteration False\n" * 2
    assert equal_bits(results[0], jax.jit(printing)(*arguments)) or close(results[0], jax.jit(printing)(*arguments))


def _sum_with_a_constant(wrap: Any) -> Any:
    """Return the gradient of a scan that adds a constant to every slice: a number, and so a loss."""

    def loss(x: Any, ys: Any) -> Any:
        z = jnp.ones((64, 64))
        turn = wrap(lambda total, y: (total + x * (y + z), None))
        return jax.lax.scan(turn, jnp.zeros_like(z), ys)[0].mean()

    return jax.grad(loss)


def _with_means(weights: Any, x: Any) -> Any:
    """Return a loss of layers in a scan, and the mean after each layer."""

    def layer(x: Any, weights: Any) -> Any:
        x = x + jnp.tanh(jnp.tanh(x @ weights["up"]) @ weights["down"])
        return x, x.mean()

    x, means = jax.lax.scan(layer, x, weights)
    return jnp.square(x).mean(), means


USES = {
    "value": lambda function, **_: function,
    "gradients": jax.grad,
    "both": jax.value_and_grad,
}


@pytest.fixture(scope="module")
def fitted_losses() -> dict[str, Any]:
    """Return fitted losses, the plain functions and their arguments."""
    plain, arguments = _sum_with_a_constant(lambda turn: turn), (np.float32(0.5), normal(9, 20))
    means, layers = _with_means, layers_arguments()
    return {
        "a gradient": (lowtide.jax.fit(plain, "50%", example_args=arguments), plain, arguments),
        "has_aux": (lowtide.jax.fit(means, "50%", example_args=layers, argnums=0), means, layers),
    }


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("loss", ["a gradient", "has_aux"])
def test_each_use_of_a_fitted_loss_with_a_scan_is_within_the_budget_with_equal_bits(
    fitted_losses: dict[str, Any], loss: str, use: str
) -> None:
    fitted, plain, arguments = fitted_losses[loss]
    assert fitted.fits
    one, other = (USES[use](function, **{"has_aux": True} if loss == "has_aux" else {}) for function in (fitted, plain))
    assert temp_bytes(one, arguments, fitted.compiler_options) <= fitted.budget_bytes
    results, expected = jax.jit(one)(*arguments), jax.jit(other)(*arguments)
    if jax.__version_info__ > (0, 10, 0):  # there, XLA adds up the loss in another order
        assert equal_bits(results, expected)
    assert close(results, expected)


def test_a_fitted_gradient_of_a_scan_needs_no_more_than_with_checkpoints_by_hand(fitted_losses: Any) -> None:
    fitted, _, arguments = fitted_losses["a gradient"]
    assert fitted.temp_bytes <= temp_bytes(_sum_with_a_constant(jax.checkpoint), arguments)


@pytest.mark.parametrize("loss", ["a gradient", "has_aux"])
def test_value_and_gradients_of_a_fitted_loss_run_no_more_loops_than_the_plain_ones(
    fitted_losses: dict[str, Any], loss: str
) -> None:
    fitted, plain, arguments = fitted_losses[loss]

    def loops(function: Any) -> int:
        both = jax.jit(jax.value_and_grad(function, has_aux=loss == "has_aux"))
        return both.lower(*arguments).compile(fitted.compiler_options).as_text().count(" while(")

    assert loops(fitted) <= loops(plain)


@pytest.mark.parametrize("jitted", [False, True])
def test_effects_of_a_fitted_loss_happen_once_with_its_gradients(
    jitted: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def printing(weights: Any, x: Any) -> Any:
        jax.debug.print("loss of {}", x[0, 0] > 99)
        return _with_means(weights, x)[0]

    arguments = layers_arguments(layers=2)
    step = jax.value_and_grad(lowtide.jax.fit(printing, "100%", example_args=arguments))
    capfd.readouterr()
    (jax.jit(step) if jitted else step)(*arguments)
    jax.effects_barrier()
    assert capfd.readouterr().out == "loss of False\n"


def _gradient_norm(weights: Any, x: Any) -> Any:
    """Return the squared norm of the gradients of layers in a scan."""
    gradients = jax.grad(lambda *arguments: _with_means(*arguments)[0])(weights, x)
    return sum(jnp.square(each).sum() for each in jax.tree.leaves(gradients))


def test_a_gradient_norm_misses_only_budgets_below_the_floor() -> None:
    arguments = layers_arguments()
    fitted = lowtide.jax.fit(_gradient_norm, "20%", example_args=arguments, argnums=(), progress=False)
    assert fitted.fits or (fitted.floor is not None and fitted.floor.at_least > fitted.budget_bytes)
    assert close(jax.jit(fitted)(*arguments), jax.jit(_gradient_norm)(*arguments))


def test_an_eager_gradient_of_a_fitted_loss_keeps_no_values_afterwards(fitted_losses: Any) -> None:
    fitted, _, arguments = fitted_losses["has_aux"]
    step = jax.grad(fitted, has_aux=True)
    step(*arguments)  # compiles
    before = len(jax.live_arrays())
    results = step(*arguments)
    assert len(jax.live_arrays()) - before == len(jax.tree.leaves(results))
