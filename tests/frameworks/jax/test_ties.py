"""Ties: the same bits, of every type, that no compiler takes for the value itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowtide.frameworks.jax.emit.ties import can_anchor, tie

TYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("anchor", [np.nan, -0.0, np.inf], ids=str)
def test_a_tied_value_has_the_same_bits_whatever_the_anchor_holds(dtype: str, anchor: float) -> None:
    value = jnp.asarray([0.0, -0.0, 1.0, 0.5]).astype(dtype)
    for width in ("float32", "bfloat16"):
        tied = jax.jit(lambda x, g: tie(x, [g]))(value, jnp.full((2, 2), anchor, width))
        assert np.asarray(tied).tobytes() == np.asarray(value).tobytes()


def test_a_random_key_is_tied_too() -> None:
    key = jax.random.key(3)
    tied = jax.jit(lambda key, g: jax.random.key_data(tie(key, [g])))(key, jnp.ones(3))
    assert np.array_equal(tied, jax.random.key_data(key))


def test_what_is_computed_again_from_a_tied_value_is_not_merged_with_the_original() -> None:
    def twice(x: Any, g: Any, again: Any) -> Any:
        return jnp.cos(x @ x).sum(), jnp.sin(again(x) @ again(x)).sum(), g

    def products(again: Any) -> int:
        compiled = jax.jit(lambda x, g: twice(x, g, lambda x: again(x, g))).lower(jnp.ones((64, 64)), jnp.ones(4))
        return compiled.compile().as_text().count(" dot(")

    assert products(lambda x, g: x) == 1
    assert products(lambda x, g: jax.lax.optimization_barrier((x, g))[0]) == 1
    assert products(lambda x, g: tie(x, [g])) == 2


@pytest.mark.parametrize(
    ("shape", "dtype", "can"), [((2,), "float32", True), ((0,), "float32", False), ((2,), "int32", False)]
)
def test_only_floating_point_values_with_elements_are_anchors(shape: Any, dtype: str, can: bool) -> None:
    assert can_anchor(jnp.zeros(shape, dtype)) == can
