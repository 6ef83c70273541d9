"""Estimated seconds of every op."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine
from lowtide.engine.costs.prices import carries_costs
from lowtide.engine.graph import Graph

_ATEN_POINTWISE = """
    abs acos acosh add addcdiv addcmul arange asin asinh atan atan2 atanh binary_cross_entropy_with_logits
    bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clone
    convert_element_type copy cos cosh div elu elu_backward empty_like eq erf erfc exp exp2 expm1 fill floor
    floor_divide fmod full full_like ge gelu gelu_backward gt hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward isinf isnan le leaky_relu leaky_relu_backward lerp log log10
    log1p log2 log_sigmoid_forward logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum
    mish mul native_dropout native_dropout_backward ne neg new_ones new_zeros ones ones_like pow reciprocal relu
    remainder round rsqrt rsub scalar_tensor sigmoid sigmoid_backward sign silu silu_backward sin sinh softplus
    softplus_backward sqrt square sub tan tanh tanh_backward threshold_backward trunc where zeros zeros_like
    _to_copy
"""
_ONNX_AND_TENSORFLOW_POINTWISE = """
    Abs AccumulateNV2 Add AddN AddV2 And BiasAdd Cast Ceil Celu Clip Cos Dequantize DequantizeLinear Div Dropout
    Elu EluGrad Equal Erf Exp Fill Floor FloorDiv FloorMod Gelu Greater GreaterEqual GreaterOrEqual HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu LeakyReluGrad Less LessEqual LessOrEqual Log Log1p LogicalAnd
    LogicalNot LogicalOr Maximum Minimum Mish Mod Mul Neg Not NotEqual OnesLike Or Pow PRelu QuantizeLinear
    RealDiv Reciprocal Relu Relu6 Relu6Grad ReluGrad Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid
    SigmoidGrad Sign Sin Softplus SoftplusGrad Softsign Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh
    TanhGrad ThresholdedRelu Where Xor ZerosLike
"""

POINTWISE = frozenset(_ATEN_POINTWISE.split() + _ONNX_AND_TENSORFLOW_POINTWISE.split())
"""Element-wise ops, which compilers fuse."""

MATRIX_PRODUCT = frozenset(
    {"addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "mv"}
    | {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "FusedMatMul", "Gemm", "MatMul"}
)

CONVOLUTION = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "Conv", "Conv2D", "Conv3D"})
"""Convolutions that read (input, weight, optional bias)."""

CONVOLUTION_BACKWARD = frozenset({"convolution_backward"})
"""Gradients of convolutions that read (output gradient, input, weight)."""

NEVER_FUSED = MATRIX_PRODUCT | CONVOLUTION | CONVOLUTION_BACKWARD
"""Ops that read their operands from memory."""


def plain_kind(kind: str) -> str:
    """Return an op kind without framework and overload: "add" for "aten.add.Tensor"."""
    parts = kind.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[-1]


ELEMENT_BYTES = 4
"""Single precision is assumed."""
_KERNEL_AREA = 9


def eager_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op with one kernel per op. O(n + e).

    Counted work is priced for the machine; other ops keep their cost or, without costs, are estimated.
    """
    priced = carries_costs(graph)
    if priced and machine is PLAIN_MACHINE:
        return graph.cost
    keeps = np.isnan(graph.traffic) if priced else np.zeros(graph.n_ops, np.bool_)
    columns = zip(graph.op_kinds, work_of_ops(graph), graph.ranks.tolist(), graph.rank_spans.tolist(), strict=True)
    seconds = [
        machine.seconds(traffic, flops)
        if ranks == 1
        else machine.collective_seconds(sent_bytes(kind, traffic, ranks), span)
        for kind, (traffic, flops), ranks, span in columns
    ]
    return np.where(keeps, graph.cost, seconds)


def fused_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op with pointwise ops fused. O(n + e).

    A pointwise op keeps the share of its arithmetic or, if larger, of writing operands of matrix products and
    convolutions.
    """
    seconds = eager_seconds(graph, machine).copy()
    kinds = [plain_kind(kind) for kind in graph.op_kinds]
    stored = np.zeros(graph.n_buffers, np.bool_)
    for op, kind in enumerate(kinds):
        if kind in NEVER_FUSED:
            stored[graph.reads[op]] = True
    for op, (kind, (traffic, flops)) in enumerate(zip(kinds, work_of_ops(graph), strict=True)):
        if kind in POINTWISE:
            written = graph.writes[op]
            moved = int(graph.sizes[written[stored[written]]].sum())
            needed = max(flops / machine.flops_per_second, moved / machine.bytes_per_second)
            seconds[op] *= needed / machine.seconds(traffic, flops)
    return seconds


def arithmetic_seconds(graph: Graph, machine: Machine) -> NDArray[np.float64]:
    """Return the seconds of every op's floating-point operations. O(n + e).

    Ops of unknown kind count one operation per four bytes written, so recomputing them is not free.
    """
    counted: list[float] = graph.flops.tolist()
    for op, (read, written) in enumerate(operand_sizes(graph)):
        if math.isnan(counted[op]):
            counted[op] = estimate_flops(graph.op_kinds[op], read, written) or sum(written) / ELEMENT_BYTES
    return np.asarray(counted, np.float64) / machine.flops_per_second


def estimate_flops(kind: str, reads: Sequence[int], writes: Sequence[int]) -> float:
    """Estimate floating-point operations from the bytes of operands and results, in argument order.

    Exact for a product of two matrices and for a convolution with a bias; without one, a 3 x 3 kernel with stride 1 is
    assumed. A batched product is overestimated by the square root of the batch. Ops of unknown kind have 0.
    """
    name = plain_kind(kind)
    results = [size / ELEMENT_BYTES for size in writes if size]
    operands = [size / ELEMENT_BYTES for size in reads]
    if not results:
        return 0.0
    if name in POINTWISE:
        return sum(results)
    if name in MATRIX_PRODUCT and operands:
        largest = sorted(operands, reverse=True)
        return 2.0 * math.sqrt(largest[0] * largest[min(1, len(largest) - 1)] * max(results))
    if name in CONVOLUTION and len(operands) > 1:
        return _convolution(operands[0], operands[1], results[0], operands[2] if len(operands) > 2 else 0.0)
    if name in CONVOLUTION_BACKWARD and len(operands) > 2:
        return 2.0 * _convolution(operands[1], operands[2], operands[0], 0.0)
    return 0.0


def _convolution(source: float, weight: float, result: float, channels: float) -> float:
    if not channels:
        channels = math.sqrt(weight * result / (_KERNEL_AREA * source)) if source else 1.0
    return 2.0 * result * weight / max(1.0, channels)


def work_of_ops(graph: Graph) -> Iterator[tuple[int, float]]:
    """Iterate over (bytes moved, floating-point operations) of all ops."""
    counted = zip(graph.traffic.tolist(), graph.flops.tolist(), strict=True)
    for kind, (read, written), (traffic, flops) in zip(graph.op_kinds, operand_sizes(graph), counted, strict=True):
        yield (
            sum(read) + sum(written) if math.isnan(traffic) else int(traffic),
            estimate_flops(kind, read, written) if math.isnan(flops) else flops,
        )


def operand_sizes(graph: Graph) -> Iterator[tuple[list[int], list[int]]]:
    sizes: list[int] = graph.sizes.tolist()
    for reads, writes, mutates in zip(graph.reads, graph.writes, graph.mutates, strict=True):
        read = [sizes[buffer] for buffer in dict.fromkeys(reads)]
        yield read, [sizes[buffer] for buffer in dict.fromkeys([*writes, *mutates])]


def sent_bytes(kind: str, traffic_bytes: float, ranks: int) -> float:
    """Return the bytes that every rank sends in a collective.

    In a ring of r ranks, a gather or scatter sends (r - 1) / (r + 1) of the traffic. An all-reduce does both. Source:
    Patarasuk and Yuan 2009, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations.
    """
    name = plain_kind(kind)
    if name.startswith(("all_gather", "reduce_scatter")):
        return traffic_bytes * (ranks - 1) / (ranks + 1)
    passes = 2 if name.startswith("all_reduce") else 1
    return passes * traffic_bytes / 2 * (ranks - 1) / ranks
