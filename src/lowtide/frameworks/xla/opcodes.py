"""What opcodes are: which only name storage, which are elementwise, which have effects, which are known at all."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FREE = frozenset({"parameter", "constant"})
"""What does nothing while a program runs."""
VIEWS = frozenset({"get-tuple-element", "bitcast", "domain", "optimization-barrier", "add-dependency"})
"""What names storage that is there already, and neither allocates nor runs."""

CONTROL_FLOW = frozenset({"while", "call", "conditional"})
"""What runs other computations, whose results are its own."""

ELEMENTWISE = _words(
    """
    abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp compare complex convert cos cosine cosh
    count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one
    logistic map maximum minimum multiply negate not or popcnt power real reduce-precision remainder
    round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign
    sin sine sinh sqrt stochastic-convert subtract tan tanh xor bitcast-convert
    """
)
"""What computes every element of its result from the elements at the same place, so that it may overwrite them. A copy
does so too, but there would be no point in one that is its own source."""

FIRST_OPERAND = frozenset({"dynamic-update-slice", "scatter", "triangular-solve", "set-dimension-size"})
"""What changes some elements of its first operand, and may do so in place."""

COLLECTIVES = _words(
    """
    all-gather all-reduce all-to-all ragged-all-to-all collective-broadcast collective-permute reduce-scatter
    all-gather-start all-reduce-start all-gather-done all-reduce-done collective-permute-start
    collective-permute-done send recv send-done recv-done
    """
)
"""What waits for other devices."""

EFFECTS = COLLECTIVES | frozenset({"infeed", "outfeed", "rng", "rng-get-and-update-state", "partition-id-seed"})
"""What keeps its place among its like: it talks to others, or advances a state that is no operand."""

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
"""Opcodes whose meaning is known here."""


def base_opcode(opcode: str) -> str:
    """Return what an asynchronous opcode starts, updates or ends: "slice" for "slice-start", else the opcode itself."""
    for ending in ("-start", "-update", "-done"):
        if opcode.endswith(ending) and opcode.removesuffix(ending) in KNOWN:
            return opcode.removesuffix(ending)
    return opcode


def is_known(opcode: str) -> bool:
    """Whether an opcode, or what it starts, updates or ends, is known."""
    return opcode in KNOWN or base_opcode(opcode) in KNOWN


def starts(opcode: str) -> bool:
    """Whether an opcode starts what another instruction waits for."""
    return opcode.endswith("-start") and is_known(opcode)


def ends(opcode: str) -> bool:
    """Whether an opcode waits for what another instruction started, or passes it on."""
    return opcode.endswith(("-done", "-update")) and is_known(opcode)
