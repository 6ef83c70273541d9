"""Convolutions on the CPU: transposed operands are counted, so that XLA needs no more than planned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowtide.jax
from tests.frameworks.jax.programs import equal_bits

IMAGES = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}
BATCH, SIZE, CHANNELS, FILTER = 4, 16, 8, 3


def program(layout: str, layers: int = 6) -> tuple[Any, Any]:
    """Return the gradient of a loss of convolutions, and its arguments."""
    drawn = np.random.default_rng(0)
    of_images, of_filters, _ = IMAGES[layout]
    lengths = {"N": BATCH, "H": SIZE, "W": SIZE, "C": CHANNELS}
    sizes = {"H": FILTER, "W": FILTER, "I": CHANNELS, "O": CHANNELS}

    def normal(*shape: int) -> Any:
        return (0.2 * drawn.normal(size=shape)).astype(np.float32)

    def loss(filters: Any, x: Any) -> Any:
        for each in filters:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, each, (1, 1), "SAME", dimension_numbers=IMAGES[layout]))
        return jnp.mean(x**2)

    filters = [normal(*(sizes[axis] for axis in of_filters)) for _ in range(layers)]
    return jax.grad(loss), (filters, normal(*(lengths[axis] for axis in of_images)))


@pytest.mark.parametrize("layout", IMAGES)
def test_planned_convolutions_fit_with_equal_bits(layout: str) -> None:
    function, arguments = program(layout)
    fitted = lowtide.jax.fit(function, "50%", example_args=arguments)
    assert fitted.fits
    assert layout == "NCHW" or fitted.temp_bytes <= 1.05 * (fitted.predicted_bytes or 0)
    assert equal_bits(fitted(*arguments), jax.jit(function)(*arguments))


def test_a_gradient_of_filters_stores_transposed_images() -> None:
    function, arguments = program("NHWC", layers=2)
    graph = lowtide.jax.read((function, arguments))
    image = BATCH * SIZE**2 * CHANNELS * 4
    scratch = [int(graph.scratch[op]) for op, kind in enumerate(graph.op_kinds) if kind == "conv_general_dilated"]
    assert sum(size >= image for size in scratch) == 2
