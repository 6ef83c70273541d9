"""Sets of opcodes."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FREE = frozenset({"parameter", "constant"})
"""No work at run time."""
VIEWS = frozenset({"get-tuple-element", "bitcast", "domain", "optimization-barrier", "add-dependency"})
"""Names of existing storage."""

CONTROL_FLOW = frozenset({"while", "call", "conditional"})

ELEMENTWISE = _words(
    """
    abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp compare complex convert cos cosine cosh
    count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one
    logistic map maximum minimum multiply negate not or popcnt power real reduce-precision remainder
    round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign
    sin sine sinh sqrt stochastic-convert subtract tan tanh xor bitcast-convert
    """
)
"""May overwrite an operand, since each element depends on elements at the same place."""

FIRST_OPERAND = frozenset({"dynamic-update-slice", "scatter", "triangular-solve", "set-dimension-size"})
"""The first operand may be updated in place."""

COLLECTIVES = _words(
    """
    all-gather all-reduce all-to-all ragged-all-to-all collective-broadcast collective-permute reduce-scatter
    all-gather-start all-reduce-start all-gather-done all-reduce-done collective-permute-start
    collective-permute-done send recv send-done recv-done
    """
)

EFFECTS = COLLECTIVES | frozenset({"infeed", "outfeed", "rng", "rng-get-and-update-state", "partition-id-seed"})
"""Ordered: they communicate or advance a hidden state."""

_OTHERS = _words(
    """
    after-all async-start async-update async-done batch-norm-grad batch-norm-inference batch-norm-training
    broadcast cholesky concatenate convolution copy copy-start copy-done custom-call dot dynamic-reshape
    dynamic-slice fft fusion gather get-dimension-size iota pad partition-id ragged-dot reduce reduce-window
    replica-id reshape reverse rng-bit-generator scan scaled-dot select-and-scatter slice sort topk transpose
    tuple
    """
)

KNOWN = FREE | VIEWS | CONTROL_FLOW | ELEMENTWISE | FIRST_OPERAND | EFFECTS | _OTHERS


def base_opcode(opcode: str) -> str:
    """Return "slice" for "slice-start", "slice-update" and "slice-done"; other opcodes unchanged."""
    for ending in ("-start", "-update", "-done"):
        if opcode.endswith(ending) and opcode.removesuffix(ending) in KNOWN:
            return opcode.removesuffix(ending)
    return opcode


def is_known(opcode: str) -> bool:
    return opcode in KNOWN or base_opcode(opcode) in KNOWN


def starts(opcode: str) -> bool:
    return opcode.endswith("-start") and is_known(opcode)


def ends(opcode: str) -> bool:
    return opcode.endswith(("-done", "-update")) and is_known(opcode)
