"""`fit`: the same values with fewer temp bytes, by XLA's own word."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowtide.jax

BLOCKS, BATCH, WIDTH, HIDDEN = 6, 512, 16, 64


def _loss(weights: Any, x: Any) -> Any:
    for into, out in weights:
        x = x + jax.nn.gelu(x @ into) @ out
    return jnp.mean(x**2)


def _step(weights: Any, x: Any) -> Any:
    loss, gradients = jax.value_and_grad(_loss)(weights, x)
    return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients), loss


@pytest.fixture(scope="module")
def arguments() -> tuple[Any, Any]:
    drawn = np.random.default_rng(0)
    weights = [
        (drawn.normal(size=(WIDTH, HIDDEN)).astype(np.float32), drawn.normal(size=(HIDDEN, WIDTH)).astype(np.float32))
        for _ in range(BLOCKS)
    ]
    return weights, drawn.normal(size=(BATCH, WIDTH)).astype(np.float32)


def _equal(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


@pytest.mark.parametrize("budget", ["70%", "40%", "25%"])
def test_a_training_step_of_blocks_fits_with_equal_bits(arguments: Any, budget: str) -> None:
    fitted = lowtide.jax.fit(_step, budget, example_args=arguments)
    assert fitted.fits
    assert fitted.temp_bytes <= fitted.budget_bytes < fitted.untouched_temp_bytes
    assert _equal(fitted(*arguments), jax.jit(_step)(*arguments))


def test_a_budget_out_of_reach_gives_the_least_that_was_reached_and_says_so(arguments: Any) -> None:
    fitted = lowtide.jax.fit(_step, "1%", example_args=arguments)
    assert not fitted.fits
    assert fitted.shortfall is not None
    assert fitted.temp_bytes == min(each.temp_bytes for each in fitted.tried) < fitted.untouched_temp_bytes
    assert "does not fit" in str(fitted)
