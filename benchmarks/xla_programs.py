"""JAX programs for `bench_xla.py`: what people compile, small; and a large module of text."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _dense(dtype: Any, *dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def _attention(x: Any, w: Any) -> Any:
    q, k, v = (x @ w[name] for name in ("q", "k", "v"))
    scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8)
    x = x + (scores @ v) @ w["o"]
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def _layer(dtype: Any, width: int, *lead: int) -> dict[str, Any]:
    square = {name: _dense(dtype, *lead, width, width) for name in "qkvo"}
    return square | {"up": _dense(dtype, *lead, width, 4 * width), "down": _dense(dtype, *lead, 4 * width, width)}


def mlp_training(dtype: Any) -> Made:
    """A training step of ten dense layers with momentum."""

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jax.nn.gelu(x @ weight)
        return (x**2).mean()

    def step(weights: Any, momenta: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(weights, x)
        momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
        return [w - 0.1 * m for w, m in zip(weights, momenta, strict=True)], momenta

    weights = [_dense(dtype, 128, 128)] * 10
    return step, (weights, weights, _dense(dtype, 512, 128))


def transformer_training(dtype: Any) -> Made:
    """Gradients of four transformer layers, each written out."""

    def loss(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = _attention(x, layer)
        return (x**2).mean()

    return jax.grad(loss), ([_layer(dtype, 64)] * 4, _dense(dtype, 4, 128, 64))


def scanned_transformer(dtype: Any) -> Made:
    """Gradients of eight transformer layers in a scan."""

    def loss(layers: Any, x: Any) -> Any:
        return (jax.lax.scan(lambda h, layer: (_attention(h, layer), None), x, layers)[0] ** 2).mean()

    return jax.grad(loss), (_layer(dtype, 64, 8), _dense(dtype, 4, 128, 64))


def recurrent_training(dtype: Any) -> Made:
    """Gradients of a gated recurrent net over 50 steps, in a loop."""

    def loss(w: Any, u: Any, x: Any) -> Any:
        def cell(h: Any, inputs: Any) -> Any:
            gate = jax.nn.sigmoid(inputs @ u)
            h = gate * h + (1 - gate) * jnp.tanh(h @ w + inputs)
            return h, h.sum()

        return jax.lax.scan(cell, jnp.zeros_like(x[0]), x)[1].sum()

    return jax.grad(loss, argnums=(0, 1)), (_dense(dtype, 64, 64), _dense(dtype, 64, 64), _dense(dtype, 50, 32, 64))


def _convolve(x: Any, w: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def unet(dtype: Any) -> Made:
    """Inference of a small U-Net: skips that live long."""

    def forward(x: Any, down: Any, up: Any) -> Any:
        skips = []
        for weight in down:
            x = jax.nn.relu(_convolve(x, weight, 2))
            skips.append(x)
        for weight, skip in zip(up, reversed(skips), strict=True):
            x = jnp.concatenate([x, skip], -1)
            x = jax.nn.relu(_convolve(jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), weight))
        return x

    down = [_dense(dtype, 3, 3, 8, 8)] * 3
    up = [_dense(dtype, 3, 3, 16, 8)] * 3
    return forward, (_dense(dtype, 2, 64, 64, 8), down, up)


def branches(dtype: Any) -> Made:
    """Eight experts side by side, and a gate that mixes them."""

    def forward(x: Any, gate: Any, up: Any, down: Any) -> Any:
        weights = jax.nn.softmax(x @ gate)
        results = [jax.nn.gelu(x @ u) @ d for u, d in zip(up, down, strict=True)]
        return sum(weights[:, k : k + 1] * result for k, result in enumerate(results))

    up, down = [_dense(dtype, 64, 256)] * 8, [_dense(dtype, 256, 64)] * 8
    return forward, (_dense(dtype, 512, 64), _dense(dtype, 64, 8), up, down)


def solver(dtype: Any) -> Made:
    """Conjugate gradients: a loop whose state is four vectors, two of which change places with others."""

    def run(a: Any, b: Any) -> Any:
        def body(state: Any) -> Any:
            x, r, p, old, k = state
            ap = a @ p
            step = old / (p @ ap)
            x, r = x + step * p, r - step * ap
            new = r @ r
            return x, r, r + new / old * p, new, k + 1

        start = (jnp.zeros_like(b), b, b, b @ b, 0)
        return jax.lax.while_loop(lambda state: (state[3] > 1e-6) & (state[4] < 99), body, start)[0]

    return run, (_dense(dtype, 256, 256), _dense(dtype, 256))


def sampler(dtype: Any) -> Made:
    """A diffusion sampler: a loop with a branch and random numbers in its body."""

    def run(key: Any, x: Any, w: Any) -> Any:
        def body(k: Any, state: Any) -> Any:
            x, key = state
            key, inner = jax.random.split(key)
            noise = jax.lax.cond(k < 9, lambda: jax.random.normal(inner, x.shape, x.dtype), lambda: jnp.zeros_like(x))
            return x - 0.1 * jnp.tanh(x @ w) + 0.01 * noise, key

        return jax.lax.fori_loop(0, 10, body, (x, key))[0]

    return run, (_dense(jnp.uint32, 2), _dense(dtype, 128, 64), _dense(dtype, 64, 64))


PROGRAMS: dict[str, Callable[[Any], Made]] = {
    "MLP, training step": mlp_training,
    "transformer, gradients": transformer_training,
    "transformer in a scan, gradients": scanned_transformer,
    "gated recurrent net, gradients": recurrent_training,
    "U-Net": unet,
    "mixture of experts": branches,
    "conjugate gradients": solver,
    "diffusion sampler": sampler,
}


def large_module(instructions: int) -> str:
    """Return a training step as HLO text of about so many instructions: layers forward, then backward."""
    shape, layers = "f32[256,256]{1,0}", instructions // 9
    contract = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = [
        "HloModule large, is_scheduled=true",
        "%fused (p0: f32[256,256], p1: f32[256,256]) -> f32[256,256] {",
        f"  %p0 = {shape} parameter(0)",
        f"  %p1 = {shape} parameter(1)",
        f"  %product = {shape} multiply(%p0, %p1)",
        f"  ROOT %sum = {shape} add(%product, %p0)",
        "}",
        "",
        f"ENTRY %main (x: f32[256,256]) -> ({', '.join(['f32[8192]'] * layers)}) {{",
        f"  %x = {shape} parameter(0)",
    ]

    def add(name: str, layer: int, what: str, kind: str = shape) -> str:
        note = f'metadata={{op_name="jit(step)/layer_{layer}/{name}" stack_frame_id={layer}}}'
        lines.append(f"  %{name}.{layer} = {kind} {what}, {note}")
        return f"%{name}.{layer}"

    inputs = ["%x"]
    for k in range(layers):
        dot = add("dot", k, f"dot({inputs[-1]}, %x), {contract}")
        tanh = add("tanh", k, f"tanh({dot})")
        inputs.append(add("fusion", k, f"fusion({tanh}, {inputs[-1]}), kind=kLoop, calls=%fused"))
    gradient, results = inputs.pop(), list[str]()
    for k in reversed(range(layers)):
        inner = add("scaled", k, f"multiply({gradient}, %tanh.{k})")
        passed = add("passed", k, f"dot({inner}, %x), {contract}")
        weight = add("weight", k, f"dot({inputs[k]}, {inner}), {contract}")
        flat = add("flat", k, f"bitcast({weight})", "f32[65536]{0}")
        results.append(add("kept", k, f"slice({flat}), slice={{[0:8192]}}", "f32[8192]{0}"))
        gradient = add("total", k, f"add({passed}, {gradient})")
    shapes = ", ".join(["f32[8192]{0}"] * layers)
    lines += [f"  ROOT %results = ({shapes}) tuple({', '.join(results)})", "}", ""]
    return "\n".join(lines)
