"""What XLA does with each primitive, by name; data, to be extended with new names."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names("reshape squeeze expand_dims")
"""The result is the operand's storage, seen in another shape."""

CHEAP = _names(
    """
        abs add add_any and bitcast_convert_type broadcast_in_dim ceil clamp concatenate conj convert_element_type
    copy copy_p dynamic_slice eq floor full_like gather ge gt imag integer_pow iota is_finite le lt max min mul ne
    neg not or pad real rev round select_n shift_left shift_right_arithmetic shift_right_logical sign slice square
    sub transpose xor stop_gradient reduce_precision split optimization_barrier population_count nextafter clz
    complex random_wrap random_unwrap
    """
)
"""Fused into each of their readers, several times if need be."""

EXPENSIVE = _names(
    """
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma div erf erf_inv erfc exp exp2 expm1 lgamma log
    log1p logistic pow rem rsqrt sin sinh sqrt tan tanh
    """
)
"""Fused into their reader where they have one only."""

REDUCTIONS = _names(
    """
    argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor
    """
)
"""What they read is fused into them; what they write is stored."""

PRODUCTS = frozenset(("dot_general", "ragged_dot", "ragged_dot_general"))
CONVOLUTIONS = frozenset(("conv_general_dilated",))
"""Kernels of their own, which read and write stored arrays."""

CALLING_PRIMITIVES = frozenset(("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"))
"""Calls that stay, since a derivative of their own hangs on them."""

LIBRARIES = _names(
    "cholesky eig eigh fft ffi_call geqrf hessenberg householder_product lu pallas_call qr schur sort svd"
)
"""Kernels that allocate workspaces of their own."""
