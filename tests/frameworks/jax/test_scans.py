"""Scans and other loops that compute again what they saved or held: the same values, less memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide.jax
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.scans.bodies import with_planned_bodies
from lowtide.frameworks.jax.scans.pairs import scan_pairs
from lowtide.frameworks.jax.scans.saving import saving_program
from tests.examples import examples
from tests.frameworks.jax.programs import blocks_arguments, blocks_loss, close, equal_bits, temp_bytes

WIDTH, LENGTH = 8, 6


def normal(key: int, *shape: int) -> Any:
    """Return numbers that are the same every time."""
    return (0.4 * np.random.default_rng(key).normal(size=shape)).astype(np.float32)


def flat(function: Any, arguments: Any) -> FlatProgram:
    """Return a function as a flat program."""
    traced = trace(function, arguments)
    return flatten(traced.jaxpr, traced.name)


def layers_step(weights: Any, x: Any) -> Any:
    """Gradients of layers in a scan that collects something of each layer, too."""

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
def test_a_scan_saves_within_a_limit_or_its_least_and_computes_the_same(share: float) -> None:
    """Of every limit: fewer bytes are saved than asked, unless it says that it cannot; every value is the same."""
    arguments = layers_arguments()
    program = flat(layers_step, arguments)
    whole = sum(pair.saved_bytes for pair in scan_pairs(program))
    saving = saving_program(program, int(share * whole))
    assert saving is not None
    assert saving.saved_bytes <= share * whole or saving.is_least
    assert saving.saved_bytes >= LENGTH * arguments[1].nbytes  # the state of every turn, or what it can be made from
    leaves = jax.tree.leaves(arguments)
    results = jax.jit(lambda *leaves: run_program(saving.program, leaves))(*leaves)
    assert close(results, jax.tree.leaves(jax.jit(layers_step)(*arguments)))


def test_what_two_saved_values_share_is_saved_once_without_a_limit() -> None:
    """JAX saves what a linear step needs by itself; several of those values are one array, or made of one."""
    program = flat(layers_step, layers_arguments())
    whole = sum(pair.saved_bytes for pair in scan_pairs(program))
    saving = saving_program(program, whole)
    assert saving is not None
    assert saving.saved_bytes < whole
    assert not saving.is_least


def test_every_scan_that_saves_less_is_a_pair_again() -> None:
    program = flat(layers_step, layers_arguments())
    saving = saving_program(program, 0)
    assert saving is not None
    assert saving.is_least
    (pair,) = scan_pairs(saving.program)
    assert pair.saved_bytes == saving.saved_bytes


def accumulated(weights: Any, batches: Any) -> Any:
    """Gradients summed over small batches, each with its backward pass within one turn."""

    def add(total: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(blocks_loss)(weights, x)
        return (total[0] + loss, jax.tree.map(jnp.add, total[1], gradients)), None

    return jax.lax.scan(add, (0.0, jax.tree.map(jnp.zeros_like, weights)), batches)[0]


def test_a_step_that_accumulates_gradients_fits_by_plans_of_its_turns() -> None:
    weights, x = blocks_arguments()
    arguments = weights, np.stack([x, 2 * x, 3 * x])
    fitted = lowtide.jax.fit(accumulated, "50%", example_args=arguments)
    assert fitted.fits
    assert "bodies planned" in fitted.found.best.name
    assert close(fitted(*arguments), jax.jit(accumulated)(*arguments))


def test_layers_in_a_scan_within_a_scan_over_batches_save_less_too() -> None:
    weights, x = layers_arguments()

    def step(weights: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, layers_step(weights, x)[1]), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), batches)[0]

    arguments = weights, np.stack([x, 2 * x])
    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.fits
    assert close(fitted(*arguments), jax.jit(step)(*arguments))


def _turns(weights: Any, x: Any) -> Any:
    """A while loop that follows a gradient."""

    def turn(state: Any) -> Any:
        count, x = state
        return count + 1, x - 0.1 * jax.grad(lambda x: blocks_loss(weights, x))(x)

    return jax.lax.while_loop(lambda state: state[0] < 2, turn, (0, x))[1]


def _branches(weights: Any, x: Any) -> Any:
    """Two branches, one of them with a backward pass."""
    return jax.lax.cond(x[0, 0] > 0, lambda: jax.grad(lambda x: blocks_loss(weights, x))(x), lambda: -x)


@pytest.mark.parametrize("function", [_turns, _branches], ids=["while", "cond"])
@pytest.mark.parametrize("window", [None, 4], ids=["left to XLA", "held"])
def test_bodies_of_any_loop_or_branch_are_planned_once_and_compute_the_same(function: Any, window: int | None) -> None:
    arguments = blocks_arguments()
    program = flat(function, arguments)
    planned = with_planned_bodies(program, temp_bytes(function, arguments) // 2, window)
    assert planned is not None
    leaves = jax.tree.leaves(arguments)
    run = jax.jit(lambda *leaves: run_program(planned, leaves))
    assert close(run(*leaves)[0], jax.jit(function)(*arguments))
    least = min(temp_bytes(run, leaves), temp_bytes(run, leaves, {"xla_cpu_scheduler_type": SMALL}))
    assert least < 0.75 * temp_bytes(function, arguments)


SMALL = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"


def test_effects_in_a_loop_happen_once_a_turn(capfd: pytest.CaptureFixture[str]) -> None:
    def printing(weights: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            jax.debug.print("turn {}", total > 1e9, ordered=True)
            return total + jax.grad(lambda x: blocks_loss(weights, x))(x).sum(), None

        return jax.lax.scan(add, 0.0, batches)[0]

    weights, x = blocks_arguments()
    arguments = weights, np.stack([x, 2 * x])
    planned = with_planned_bodies(flat(printing, arguments), temp_bytes(printing, arguments) // 2, None)
    assert planned is not None
    results = jax.jit(lambda *leaves: run_program(planned, leaves))(*jax.tree.leaves(arguments))
    jax.effects_barrier()
    assert capfd.readouterr().out == "turn False\n" * 2
    assert equal_bits(results[0], jax.jit(printing)(*arguments)) or close(results[0], jax.jit(printing)(*arguments))
