"""Small programs for several tests."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BLOCKS, BATCH, WIDTH, HIDDEN = 3, 512, 16, 64


def blocks_loss(weights: Any, x: Any) -> Any:
    """Return the loss of residual blocks of two products."""
    for into, out in weights:
        x = x + jax.nn.gelu(x @ into) @ out
    return jnp.mean(x**2)


def blocks_step(weights: Any, x: Any) -> Any:
    """Return updated weights and the loss."""
    loss, gradients = jax.value_and_grad(blocks_loss)(weights, x)
    return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients), loss


def blocks_arguments(batch: int = BATCH, blocks: int = BLOCKS) -> tuple[Any, Any]:
    """Return weights and a batch from a fixed seed."""
    drawn = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (0.3 * drawn.normal(size=shape)).astype(np.float32)

    return [(normal(WIDTH, HIDDEN), normal(HIDDEN, WIDTH)) for _ in range(blocks)], normal(batch, WIDTH)


def recurrent_step(weights: Any, x: Any) -> Any:
    """Return the loss of a recurrent net by a scan, and its gradients."""

    def loss(weights: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            state = jnp.tanh(x @ weights["in"] + state @ weights["state"])
            return state, state.sum(-1)

        state, seen = jax.lax.scan(cell, jnp.zeros((x.shape[1], WIDTH)), x)
        return jnp.mean(state**2) + jnp.mean(seen**2)

    return jax.value_and_grad(loss)(weights)


def recurrent_arguments(steps: int) -> tuple[Any, Any]:
    """Return weights and a sequence of `steps` inputs."""
    drawn = np.random.default_rng(1)
    weights = {name: (0.2 * drawn.normal(size=(WIDTH, WIDTH))).astype(np.float32) for name in ("in", "state")}
    return weights, drawn.normal(size=(steps, 32, WIDTH)).astype(np.float32)


def equal_bits(one: Any, other: Any) -> bool:
    """Return whether two structures hold bit-equal arrays."""
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def close(one: Any, other: Any) -> bool:
    """Return whether two structures hold arrays that are equal up to rounding, relative to the largest element."""

    def is_close(a: Any, b: Any) -> bool:
        return np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(b).max()))

    return jax.tree.all(jax.tree.map(is_close, one, other))


def temp_bytes(function: Any, arguments: Any, options: Any = None) -> int:
    """Return XLA's temp bytes of a compiled function."""
    return jax.jit(function).lower(*arguments).compile(compiler_options=options).memory_analysis().temp_size_in_bytes


def run_on_devices(script: str, count: int) -> str:
    """Run a script in a separate process with virtual devices, whose number cannot change; return its output."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    settings = {"XLA_FLAGS": flags, "PYTHONPATH": ":".join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=settings)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout
