"""Bytes and operations of equations."""

import math
from typing import Any

import numpy as np

from lowtide.frameworks.jax.reading.kernels import CONVOLUTIONS, PRODUCTS, called_jaxpr

_SUB_BYTE = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
"""Bits per packed element."""


def bytes_of(aval: Any) -> int:
    """Return the bytes of an array: a random key counts as its words, a token as zero."""
    shape = getattr(aval, "shape", None)
    if shape is None:
        return 0
    dtype = aval.dtype
    if isinstance(dtype, np.dtype):
        bits = _SUB_BYTE.get(dtype.name, 8 * dtype.itemsize)
        return -(-math.prod(shape) * bits // 8)
    words = getattr(getattr(dtype, "_impl", None), "key_shape", (2,))
    return math.prod(shape) * 4 * math.prod(words)


def flops_of(eqn: Any) -> float:
    """Return floating-point operations, exact for products and convolutions.

    A scan counts all iterations, a while loop one.
    """
    kind = eqn.primitive.name
    if kind in PRODUCTS:
        return _product(eqn)
    if kind in CONVOLUTIONS:
        return _convolution(eqn)
    if kind == "cond":
        return max(sum(map(flops_of, branch.jaxpr.eqns)) for branch in eqn.params["branches"])
    if kind == "while":
        return sum(map(flops_of, eqn.params["body_jaxpr"].jaxpr.eqns))
    inner = called_jaxpr(eqn)
    if inner is not None:
        return float(eqn.params.get("length", 1)) * sum(map(flops_of, inner.eqns))
    reduced = eqn.invars[:1] if kind.startswith("reduce_") else ()
    return float(sum(_elements(var.aval) for var in (*eqn.outvars, *reduced)))


def _elements(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ()))


def _product(eqn: Any) -> float:
    left = eqn.invars[0].aval.shape
    if eqn.primitive.name != "dot_general":
        return 2.0 * _elements(eqn.outvars[0].aval) * left[-1]
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return 2.0 * _elements(eqn.outvars[0].aval) * math.prod(left[axis] for axis in contracted)


def _convolution(eqn: Any) -> float:
    kernel = eqn.invars[1].aval
    features = kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * _elements(eqn.outvars[0].aval) * _elements(kernel) / max(1, features)
