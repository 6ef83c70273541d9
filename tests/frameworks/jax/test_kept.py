"""What a fitted function keeps of the original: derivatives of its own, effects, loops, the user's checkpoints."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import lowtide.jax
from tests.frameworks.jax.programs import blocks_arguments, close, temp_bytes


@jax.custom_vjp
def clipped(x: Any) -> Any:
    """The identity, whose gradient is cut off."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1e-4, 1e-4),))


@jax.custom_jvp
def odd(x: Any) -> Any:
    """A sine whose derivative is said to be five."""
    return jnp.sin(x)


odd.defjvps(lambda tangent, _, x: 5 * tangent)


def _loss(weights: Any, x: Any, through: Any) -> Any:
    for into, out in weights:
        x = x + through(jnp.tanh(x @ into)) @ out
    return jnp.mean(x**2)


@pytest.mark.parametrize("through", [clipped, odd], ids=["custom_vjp", "custom_jvp"])
def test_derivatives_of_the_users_own_are_kept(through: Any) -> None:
    weights, x = blocks_arguments()
    arguments = (weights[:4], x)

    def step(weights: Any, x: Any) -> Any:
        return jax.value_and_grad(_loss)(weights, x, through)

    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.temp_bytes < fitted.untouched_temp_bytes
    assert close(fitted(*arguments), jax.jit(step)(*arguments))


def test_effects_happen_once_and_in_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    weights, x = blocks_arguments()
    arguments = (weights[:4], x)

    def step(weights: Any, x: Any) -> Any:
        jax.debug.print("first {}", x[0, 0] > 99, ordered=True)
        loss, gradients = jax.value_and_grad(lambda weights: _loss(weights, x, jnp.tanh))(weights)
        jax.debug.print("second {}", loss < 0, ordered=True)
        return loss, gradients

    fitted = lowtide.jax.fit(step, "60%", example_args=arguments)
    assert fitted.temp_bytes < fitted.untouched_temp_bytes
    fitted(*arguments)
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:3] == ["first False", "second False", ""]


def test_checkpoints_of_the_users_own_are_never_undone_for_worse() -> None:
    arguments = blocks_arguments()

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = x
            for into, out in weights:
                y = jax.checkpoint(lambda y, into=into, out=out: y + jnp.tanh(y @ into) @ out)(y)
            return jnp.mean(y**2)

        return jax.grad(loss)(weights)

    fitted = lowtide.jax.fit(step, "100%", example_args=arguments)
    assert fitted.untouched_temp_bytes == temp_bytes(step, arguments)
    least = temp_bytes(step, arguments, {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"})
    assert lowtide.jax.fit(step, least, example_args=arguments, transient=True).fits
