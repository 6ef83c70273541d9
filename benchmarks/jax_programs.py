"""Fourteen whole training steps in JAX, random weights: what `lowtide.jax.fit` is measured on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DEVICES = 8
"""Virtual CPU devices of the programs over a mesh."""


@dataclass(frozen=True)
class Step:
    """A training step and its arguments: weights, optimizer state, then a batch."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def _normal(key: int, *shape: int, scale: float | None = None) -> Any:
    fan = max(1, math.prod(shape[:-1]))
    drawn = np.random.default_rng(key).normal(size=shape) * (scale or fan**-0.5)
    return jnp.asarray(drawn.astype(np.float32))


def _training(name: str, loss: Callable[..., Any], weights: Any, batch: tuple[Any, ...], optimizer: Any = None) -> Step:
    rule = optimizer or optax.adamw(1e-3)

    def step(weights: Any, state: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, *batch)
        updates, state = rule.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    return Step(name, step, (weights, rule.init(weights), *batch))


def _norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def mlp_stack(
    blocks: int = 10,
    batch: int = 4096,
    width: int = 64,
    hidden: int = 256,
    block: Callable[..., Any] = _as_it_is,
    norm: Callable[..., Any] = _norm,
) -> Step:
    """Residual blocks of two products each; `block` may be `jax.checkpoint`, `norm` what they do first."""

    @block
    def residual(x: Any, into: Any, out: Any) -> Any:
        return x + jax.nn.gelu(norm(x) @ into) @ out

    def loss(weights: Any, x: Any) -> Any:
        for into, out in weights:
            x = residual(x, into, out)
        return jnp.square(x).mean()

    weights = [(_normal(n, width, hidden), _normal(n + 99, hidden, width)) for n in range(blocks)]
    name = "MLP stack" if norm is _norm else "MLP stack, not normalized"
    return _training(name, loss, weights, (_normal(7, batch, width),))


def _conv(x: Any, kernel: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv_stack(
    layers: int = 16, batch: int = 8, size: int = 32, width: int = 32, block: Callable[..., Any] = _as_it_is
) -> Step:
    """Residual convolutions; `block` may be `jax.checkpoint`."""

    @block
    def residual(x: Any, kernel: Any) -> Any:
        return x + jax.nn.relu(_conv(x, kernel))

    def loss(weights: Any, x: Any) -> Any:
        for kernel in weights:
            x = residual(x, kernel)
        return jnp.square(x).mean()

    weights = [_normal(n, 3, 3, width, width) for n in range(layers)]
    return _training("residual convolutions", loss, weights, (_normal(7, batch, size, size, width, scale=1.0),))


def _attention(weights: Any, x: Any, heads: int, causal: bool) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        (x @ weights[name]).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for name in "qkv"
    )
    scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return mixed @ weights["o"]


def _block(weights: Any, x: Any, heads: int = 4, causal: bool = True) -> Any:
    x = x + _attention(weights, _norm(x), heads, causal)
    return x + jax.nn.gelu(_norm(x) @ weights["in"]) @ weights["out"]


def _block_weights(seed: int, width: int) -> dict[str, Any]:
    square = {name: _normal(seed + place, width, width) for place, name in enumerate("qkvo")}
    return {**square, "in": _normal(seed + 5, width, 4 * width), "out": _normal(seed + 6, 4 * width, width)}


def _tokens(key: int, batch: int, length: int, vocabulary: int) -> Any:
    return jnp.asarray(np.random.default_rng(key).integers(0, vocabulary, (batch, length), np.int32))


def transformer(
    layers: int = 4,
    width: int = 64,
    batch: int = 8,
    length: int = 128,
    vocabulary: int = 512,
    wrap: Callable[..., Any] = _as_it_is,
) -> Step:
    """A causal language model, its layers one after the other; `wrap` may be `jax.checkpoint`."""

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["embedding"][tokens]
        for block in weights["blocks"]:
            x = wrap(partial(_block, heads=max(4, width // 64)))(block, x)
        return _cross_entropy(_norm(x[:, :-1]) @ weights["embedding"].T, tokens[:, 1:])

    weights = {
        "embedding": _normal(1, vocabulary, width, scale=0.1),
        "blocks": [_block_weights(10 * n, width) for n in range(layers)],
    }
    return _training("transformer", loss, weights, (_tokens(2, batch, length, vocabulary),))


def transformer_scan(layers: int = 8, width: int = 64, batch: int = 8, length: int = 128, vocab: int = 512) -> Step:
    """The same with a scan over the layers."""

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["embedding"][tokens]
        x, _ = jax.lax.scan(lambda x, block: (_block(block, x), None), x, weights["blocks"])
        return _cross_entropy(_norm(x[:, :-1]) @ weights["embedding"].T, tokens[:, 1:])

    blocks = [_block_weights(10 * n, width) for n in range(layers)]
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *blocks)
    weights = {"embedding": _normal(1, vocab, width, scale=0.1), "blocks": stacked}
    return _training("transformer, scan over layers", loss, weights, (_tokens(2, batch, length, vocab),))


def _batch_norm(x: Any, scale: Any) -> Any:
    mean = x.mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean((0, 1, 2)) + 1e-5) * scale


def resnet(batch: int = 16, size: int = 32) -> Step:
    """Three stages of two residual blocks with batch normalization."""
    widths = (16, 32, 64)

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        x = _conv(x, weights["stem"])
        for stage in weights["stages"]:
            for block in stage:
                stride = 2 if "skip" in block else 1
                y = jax.nn.relu(_batch_norm(_conv(x, block["a"], stride), block["as"]))
                y = _batch_norm(_conv(y, block["b"]), block["bs"])
                x = jax.nn.relu(y + (_conv(x, block["skip"], stride) if "skip" in block else x))
        return _cross_entropy(x.mean((1, 2)) @ weights["head"], labels)

    stages: list[Any] = []
    before = widths[0]
    for place, width in enumerate(widths):
        blocks: list[Any] = []
        for number in range(2):
            block = {
                "a": _normal(place * 9 + number, 3, 3, before, width),
                "b": _normal(place * 9 + number + 4, 3, 3, width, width),
                "as": jnp.ones(width),
                "bs": jnp.ones(width),
            }
            if before != width:
                block["skip"] = _normal(place * 9 + 8, 1, 1, before, width)
            blocks.append(block)
            before = width
        stages.append(blocks)
    weights = {"stem": _normal(70, 3, 3, 3, widths[0]), "stages": stages, "head": _normal(71, widths[-1], 10)}
    batch_of = (_normal(7, batch, size, size, 3, scale=1.0), jnp.arange(batch) % 10)
    return _training("ResNet", loss, weights, batch_of, optax.sgd(0.1, momentum=0.9))


def unet(batch: int = 8, size: int = 32, width: int = 16) -> Step:
    """A diffusion step: noise is drawn, added, and predicted by a U-Net with two levels."""

    def loss(weights: Any, x: Any, key: Any) -> Any:
        drawn, noisy = jax.random.split(key)
        noise = jax.random.normal(drawn, x.shape)
        level = jax.random.uniform(noisy, (x.shape[0], 1, 1, 1))
        y = jnp.sqrt(1 - level) * x + jnp.sqrt(level) * noise
        down: list[Any] = []
        y = _conv(y, weights["in"])
        for kernels in weights["down"]:
            y = y + jax.nn.silu(_conv(y, kernels[0]))
            down.append(y)
            y = _conv(y, kernels[1], 2)
        y = y + jax.nn.silu(_conv(y, weights["middle"]))
        for kernels, skip in zip(weights["up"], reversed(down), strict=True):
            y = jax.image.resize(y, (*skip.shape[:3], y.shape[3]), "nearest")
            y = jax.nn.silu(_conv(jnp.concatenate([y, skip], -1), kernels[0]))
            y = y + jax.nn.silu(_conv(y, kernels[1]))
        return jnp.square(_conv(y, weights["out"]) - noise).mean()

    weights = {
        "in": _normal(1, 3, 3, 3, width),
        "down": [
            (_normal(10 + n, 3, 3, width << n, width << n), _normal(20 + n, 3, 3, width << n, width << n + 1))
            for n in range(2)
        ],
        "middle": _normal(30, 3, 3, width << 2, width << 2),
        "up": [
            (_normal(40 + n, 3, 3, 3 * (width << n), width << n), _normal(50 + n, 3, 3, width << n, width << n))
            for n in (1, 0)
        ],
        "out": _normal(60, 3, 3, width, 3),
    }
    return _training("diffusion U-Net", loss, weights, (_normal(7, batch, size, size, 3, scale=1.0), jax.random.key(3)))


def moe(layers: int = 4, experts: int = 4, batch: int = 2048, width: int = 64) -> Step:
    """Mixtures of experts: every token goes to the best of four, weighed by its gate."""

    def loss(weights: Any, x: Any) -> Any:
        for layer in weights:
            gates = jax.nn.softmax(x @ layer["gate"])
            best = jax.nn.one_hot(gates.argmax(-1), experts) * gates
            hidden = jax.nn.gelu(jnp.einsum("td,edh->teh", x, layer["in"])) * best[..., None]
            x = _norm(x + jnp.einsum("teh,ehd->td", hidden, layer["out"]))
        return jnp.square(x - 1).mean()

    weights = [
        {
            "gate": _normal(n, width, experts),
            "in": _normal(n + 10, experts, width, 2 * width, scale=0.1),
            "out": _normal(n + 20, experts, 2 * width, width, scale=0.1),
        }
        for n in range(layers)
    ]
    return _training("mixture of experts", loss, weights, (_normal(7, batch, width),))


def scan_rnn(steps: int = 200, batch: int = 64, width: int = 128) -> Step:
    """A recurrent net over two hundred steps."""

    def loss(weights: Any, x: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            state = jnp.tanh(x @ weights["in"] + state @ weights["state"])
            return state, state.mean(-1)

        state, seen = jax.lax.scan(cell, jnp.zeros((batch, width)), x)
        return jnp.square(state).mean() + jnp.square(seen).mean()

    weights = {"in": _normal(1, 32, width), "state": _normal(2, width, width)}
    return _training("recurrent net, scan", loss, weights, (_normal(7, steps, batch, 32, scale=1.0),))


def lstm(steps: int = 96, batch: int = 64, width: int = 96) -> Step:
    """Two layers of LSTM by scans."""

    def loss(weights: Any, x: Any) -> Any:
        for layer in weights:

            def cell(state: Any, x: Any, layer: Any = layer) -> Any:
                hidden, memory = state
                i, f, g, o = jnp.split(x @ layer["in"] + hidden @ layer["state"], 4, axis=-1)
                memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
                hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
                return (hidden, memory), hidden

            zero = jnp.zeros((batch, width))
            _, x = jax.lax.scan(cell, (zero, zero), x)
        return jnp.square(x[-1] - 1).mean()

    weights = [{"in": _normal(n, width, 4 * width), "state": _normal(n + 9, width, 4 * width)} for n in range(2)]
    return _training("LSTM, scan", loss, weights, (_normal(7, steps, batch, width, scale=1.0),), optax.adam(1e-3))


def mlp_mixer(blocks: int = 4, batch: int = 32, patches: int = 64, width: int = 64) -> Step:
    """Products over patches and over channels by turns."""

    def loss(weights: Any, x: Any) -> Any:
        for block in weights:
            y = jnp.swapaxes(_norm(x), 1, 2)
            x = x + jnp.swapaxes(jax.nn.gelu(y @ block[0]) @ block[1], 1, 2)
            x = x + jax.nn.gelu(_norm(x) @ block[2]) @ block[3]
        return jnp.square(x.mean(1)).mean()

    weights = [
        (
            _normal(n, patches, 2 * patches),
            _normal(n + 20, 2 * patches, patches),
            _normal(n + 40, width, 4 * width),
            _normal(n + 60, 4 * width, width),
        )
        for n in range(blocks)
    ]
    return _training("MLP mixer", loss, weights, (_normal(7, batch, patches, width, scale=1.0),))


def vit(layers: int = 4, width: int = 64, batch: int = 32) -> Step:
    """A vision transformer over patches of four by four."""

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        y = _conv(x, weights["patch"], 4).reshape(batch, -1, width) + weights["position"]
        for block in weights["blocks"]:
            y = _block(block, y, causal=False)
        return _cross_entropy(_norm(y).mean(1) @ weights["head"], labels)

    weights = {
        "patch": _normal(1, 4, 4, 3, width),
        "position": _normal(2, 64, width, scale=0.02),
        "blocks": [_block_weights(10 * n, width) for n in range(layers)],
        "head": _normal(3, width, 10),
    }
    return _training("vision transformer", loss, weights, (_normal(7, batch, 32, 32, 3), jnp.arange(batch) % 10))


def vae(batch: int = 2048, pixels: int = 256, hidden: int = 256, code: int = 16) -> Step:
    """A variational autoencoder, dense, with its random draw inside the step."""

    def loss(weights: Any, x: Any, key: Any) -> Any:
        y = x
        for weight in weights["encoder"]:
            y = jax.nn.relu(y @ weight)
        mean, log_variance = y @ weights["mean"], y @ weights["variance"]
        y = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        for weight in weights["decoder"]:
            y = jax.nn.relu(y @ weight)
        logits = y @ weights["out"]
        image = optax.sigmoid_binary_cross_entropy(logits, jax.nn.sigmoid(x)).sum(-1)
        divergence = 0.5 * (jnp.exp(log_variance) + jnp.square(mean) - 1 - log_variance).sum(-1)
        return (image + divergence).mean()

    weights = {
        "encoder": [_normal(1, pixels, hidden), _normal(2, hidden, hidden), _normal(3, hidden, hidden)],
        "mean": _normal(4, hidden, code),
        "variance": _normal(5, hidden, code),
        "decoder": [_normal(6, code, hidden), _normal(8, hidden, hidden), _normal(9, hidden, hidden)],
        "out": _normal(10, hidden, pixels),
    }
    return _training("VAE", loss, weights, (_normal(7, batch, pixels, scale=1.0), jax.random.key(5)))


def mesh_data_parallel() -> Step:
    """The transformer with its batch over eight devices, in a `shard_map` with a sum of the gradients."""
    single = transformer(layers=4, batch=32)
    mesh = Mesh(jax.devices()[:DEVICES], ("data",))
    rule = optax.adamw(1e-3)

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["embedding"][tokens]
        for block in weights["blocks"]:
            x = _block(block, x)
        return _cross_entropy(_norm(x[:, :-1]) @ weights["embedding"].T, tokens[:, 1:])

    whole, parts = PartitionSpec(), PartitionSpec("data")

    @partial(jax.shard_map, mesh=mesh, in_specs=(whole, whole, parts), out_specs=whole, check_vma=False)
    def step(weights: Any, state: Any, tokens: Any) -> Any:
        value, gradients = jax.lax.pmean(jax.value_and_grad(loss)(weights, tokens), "data")
        updates, state = rule.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    weights, _, tokens = single.arguments
    return Step("transformer over a mesh, shard_map", step, (weights, rule.init(weights), tokens))


def mesh_sharded(blocks: int = 8, batch: int = 4096, width: int = 64, hidden: int = 512) -> Step:
    """Residual blocks whose hidden width and batch lie over four by two devices, as `jax.jit` partitions them."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(4, 2), ("data", "model"))
    step = mlp_stack(blocks, batch, width, hidden)
    weights, state, x = step.arguments
    into, out = (NamedSharding(mesh, PartitionSpec(*names)) for names in ((None, "model"), ("model", None)))
    placed = [(into, out) for _ in weights]
    states = jax.tree.map(lambda leaf: NamedSharding(mesh, PartitionSpec()), state)
    moments = states[0]._replace(mu=placed, nu=placed)
    shardings = (placed, (moments, *states[1:]), NamedSharding(mesh, PartitionSpec("data", None)))
    jitted = jax.jit(step.function, in_shardings=shardings, out_shardings=(*shardings[:2], None))
    return Step("MLP stack over a mesh, sharded", jitted, jax.device_put((weights, state, x), shardings))


PROGRAMS: tuple[Callable[[], Step], ...] = (
    mlp_stack,
    conv_stack,
    transformer,
    transformer_scan,
    resnet,
    unet,
    moe,
    scan_rnn,
    lstm,
    mlp_mixer,
    vit,
    vae,
    mesh_data_parallel,
    mesh_sharded,
)
