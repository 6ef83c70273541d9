"""A training step in JAX: ten residual blocks, gradients and momentum, fitted into a budget by `lowtide.jax.fit`."""

from typing import Any

import jax
import jax.numpy as jnp

import lowtide.jax

BLOCKS, BATCH, WIDTH, HIDDEN = 10, 4096, 64, 256


def loss(weights: Any, x: Any) -> Any:
    """Return the mean square of the output of the blocks for a batch."""
    for into, out in weights:
        x = x + jax.nn.gelu(x @ into) @ out
    return jnp.square(x).mean()


def step(weights: Any, momenta: Any, x: Any) -> Any:
    """Return new weights, new momenta and the loss."""
    value, gradients = jax.value_and_grad(loss)(weights, x)
    momenta = jax.tree.map(lambda momentum, gradient: 0.9 * momentum + gradient, momenta, gradients)
    return jax.tree.map(lambda weight, momentum: weight - 0.01 * momentum, weights, momenta), momenta, value


def training_step() -> tuple[Any, tuple[Any, Any, Any]]:
    """Return the step and the shapes of its arguments, for the command line. Nothing is allocated."""
    weights = [
        (jax.ShapeDtypeStruct((WIDTH, HIDDEN), "float32"), jax.ShapeDtypeStruct((HIDDEN, WIDTH), "float32"))
        for _ in range(BLOCKS)
    ]
    return step, (weights, weights, jax.ShapeDtypeStruct((BATCH, WIDTH), "float32"))


if __name__ == "__main__":
    function, shapes = training_step()
    print(lowtide.jax.fit(function, "40%", example_args=shapes))
