"""Record the modules in `modules/`: small JAX programs before and after XLA's CPU compiler.

Run `python tests/frameworks/xla/record_modules.py` with the extra jax. NAME.before.hlo is the compiler's input,
NAME.hlo its scheduled output, NAME.pb the same as HloProto with buffer assignment, NAME.mlir the input as StableHLO.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

FOLDER = Path(__file__).parent / "modules"
F32 = jnp.float32


def shaped(*dims: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    """Return a placeholder for an array."""
    return jax.ShapeDtypeStruct(dims, dtype)


def scan(x: Any, w: Any) -> Any:
    """A recurrent net and a sort."""
    last, sums = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=5)
    return last + jnp.sort(x) * 2, sums


def swap(a: Any, b: Any) -> Any:
    """A loop that swaps the two parts of its state."""
    return jax.lax.fori_loop(0, 10, lambda _, s: (s[1], s[0] * 2.0), (a, b))


def rotate(a: Any, b: Any, c: Any) -> Any:
    """A loop that rotates the three parts of its state."""
    return jax.lax.fori_loop(0, 10, lambda _, s: (s[1], s[2], s[0]), (a, b, c))


def conditional(p: Any, x: Any) -> Any:
    """Two branches with different peaks."""
    return jax.lax.cond(p, lambda y: jnp.sin(y) @ y, lambda y: y * 2, x) + 1


def nested(x: Any) -> Any:
    """A loop in a loop, over a state of tuples in tuples."""

    def outer(_: Any, state: Any) -> Any:
        a, (b, c) = state
        b = jax.lax.while_loop(lambda t: t.sum() < 100, lambda t: t * 1.5 + 1, b)
        return a + b, (b, c @ c)

    return jax.lax.fori_loop(0, 3, outer, (x, (x * 2, x)))


def train(weights: Any, momenta: Any, x: Any) -> Any:
    """A training step of four layers with donated weights and momenta."""

    def loss(inner: Any) -> Any:
        h = x
        for weight in inner:
            h = jax.nn.gelu(h @ weight)
        return (h**2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, momenta, strict=True)], momenta, value


def record(name: str, function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> None:
    """Write the files of one program."""
    lowered = jax.jit(function, donate_argnums=donate).lower(*args)
    compiled = lowered.compile()
    module = compiled.runtime_executable().hlo_modules()[0]
    files = {
        f"{name}.before.hlo": lowered.compiler_ir("hlo").as_hlo_text(),
        f"{name}.hlo": module.to_string(),
        f"{name}.mlir": lowered.as_text(),
    }
    for file, text in files.items():
        (FOLDER / file).write_text(text.replace(__file__, Path(__file__).name), encoding="utf-8")
    inner = module.as_serialized_hlo_module_proto().replace(__file__.encode(), b"?" * len(__file__))
    assignment = compiled.memory_analysis().serialized_buffer_assignment_proto
    (FOLDER / f"{name}.pb").write_bytes(field(1, inner) + field(3, assignment))
    print(name, compiled.memory_analysis())


def field(number: int, content: bytes) -> bytes:
    """Return a bytes field of a protocol buffer."""
    size, digits = len(content), []
    while size >= 128:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + content


def main() -> None:
    """Record all programs."""
    FOLDER.mkdir(exist_ok=True)
    record("scan", scan, shaped(64, 64), shaped(64, 64))
    record("swap", swap, shaped(256), shaped(256))
    record("rotate", rotate, shaped(256), shaped(256), shaped(256))
    record("conditional", conditional, shaped(dtype=bool), shaped(32, 32))
    record("nested", nested, shaped(16, 16))
    record("train", train, [shaped(64, 64)] * 4, [shaped(64, 64)] * 4, shaped(128, 64), donate=(0, 1))


if __name__ == "__main__":
    main()
