"""Read a program into a graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jax.extend.core import ClosedJaxpr

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.costs import PLAIN_MACHINE
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value
from lowtide.frameworks.jax.reading.bodies import bodies_of, kept_results, source_of
from lowtide.frameworks.jax.reading.kernels import (
    CONVOLUTIONS,
    LIBRARIES,
    PRODUCTS,
    REDUCTIONS,
    VIEWS,
    Kernel,
    Kernels,
    fusion_kind,
    is_repeated,
    kernels_of,
)
from lowtide.frameworks.jax.reading.sizes import bytes_of, flops_of

Counted = Literal["everything", "temporaries", "callee"]
"""Bytes in the peak: all but constants; XLA's temp bytes; or those of a body without its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxTranslation:
    program: FlatProgram
    kernels: Kernels
    graph: Graph
    buffers: Mapping[Value, BufferId]

    def equation(self, op: OpId) -> Equation:
        return self.program.equations[self.kernels.kernels[op].root]


def read_program(program: FlatProgram, counted: Counted = "everything", kept: int | None = None) -> JaxTranslation:
    """Read a flat program into a graph of kernels.

    Inputs live throughout, or until their last use if donated. With "temporaries", inputs and outputs are not in the
    peak. Only the first `kept` results, by default all, live to the end.
    """
    kernels = kernels_of(program)
    builder = GraphBuilder(program.name)
    returned = {kernels.base[atom] for atom in program.outputs[:kept] if isinstance(atom, int)}
    buffers: dict[Value, BufferId] = {}
    for value in dict.fromkeys((*program.inputs, *program.constants)):
        persistent = value in program.constants or counted != "everything"
        donated = value in program.donated and value not in returned
        lifetime = Lifetime.PERSISTENT if persistent else Lifetime.DONATED if donated else Lifetime.INPUT
        buffers[value] = builder.add_buffer(f"input.{value}", bytes_of(program.types[value]), lifetime)
    for number, kernel in enumerate(kernels.kernels):
        equation = program.equations[kernel.root]
        for place, value in enumerate(equation.outputs):
            size = 0 if value in returned and counted == "temporaries" else bytes_of(program.types[value])
            lifetime = Lifetime.OUTPUT if value in returned else Lifetime.INTERMEDIATE
            buffers[value] = builder.add_buffer(f"{equation.kind}.{number}.{place}", size, lifetime)
    for number in range(len(kernels.kernels)):
        add_kernel(builder, number, program, kernels, buffers)
    for sentence in _unmodeled(program):
        builder.note(sentence)
    return JaxTranslation(program=program, kernels=kernels, graph=builder.build(), buffers=buffers)


def read_body(equation: Equation, body: ClosedJaxpr, name: str, platform: str) -> JaxTranslation:
    return read_program(flatten(body, name, platform=platform), "callee", kept_results(equation.origin, body))


def add_kernel(
    builder: GraphBuilder,
    number: int,
    program: FlatProgram,
    kernels: Kernels,
    buffers: Mapping[Value, BufferId],
    with_callees: bool = True,
) -> None:
    kernel = kernels.kernels[number]
    equation = program.equations[kernel.root]
    name = f"{equation.kind}.{number}"
    callees: list[str] = []
    for label, body in bodies_of(equation.origin) if with_callees else ():
        callee = read_body(equation, body, f"{program.name}/{name}.{label}", program.platform).graph
        builder.add_subgraph(callee.name, callee)
        callees.append(callee.name)
    ordered = bool(equation.origin.effects)
    flops = sum(flops_of(program.equations[position].origin) for position in kernel.within)
    traffic = sum(bytes_of(program.types[value]) for value in (*kernel.reads, *equation.outputs))
    builder.add_op(
        name,
        equation.kind,
        reads=list(dict.fromkeys(buffers[kernels.base[value]] for value in kernel.reads)),
        writes=[buffers[value] for value in equation.outputs],
        in_place=dict.fromkeys(_pairs(kernel, program, kernels, buffers)),
        pure=not ordered,
        ordered=ordered,
        cost=PLAIN_MACHINE.seconds(traffic, flops),
        flops=flops,
        scratch_bytes=_transposed_bytes(equation, program, kernels.makers),
        callees=callees,
        source=source_of(equation),
    )


def _pairs(
    kernel: Kernel, program: FlatProgram, kernels: Kernels, buffers: Mapping[Value, BufferId]
) -> Iterator[tuple[BufferId, BufferId]]:
    equation = program.equations[kernel.root]
    if fusion_kind(equation.origin) not in ("cheap", "expensive") or len(equation.outputs) != 1:
        return
    written = program.types[equation.outputs[0]]
    given = {*program.inputs, *program.constants}
    for value in kernel.reads:
        base = kernels.base[value]
        read = program.types[value]
        if base in given or value in kernel.direct or read.shape != written.shape:
            continue
        if bytes_of(read) == bytes_of(written) == bytes_of(program.types[base]):
            yield buffers[base], buffers[equation.outputs[0]]


def _unmodeled(program: FlatProgram) -> Iterator[str]:
    kinds = {equation.kind for equation in program.equations}
    if any(equation.kind in PRODUCTS and _is_batched(equation.origin) for equation in program.equations):
        yield "copies that XLA makes to transpose operands of batched products"
    if _reductions_read_broadcasts(program):
        yield "broadcasts that XLA stores for reductions that its kernel library computes"
    if kinds & LIBRARIES:
        yield f"workspaces of library kernels: {', '.join(sorted(kinds & LIBRARIES))}"
    if "while" in kinds:
        yield "iterations of while loops: the cost is that of one iteration"


def _is_batched(eqn: Any) -> bool:
    return eqn.primitive.name == "dot_general" and bool(eqn.params["dimension_numbers"][1][0])


def _reductions_read_broadcasts(program: FlatProgram) -> bool:
    """Return whether a reduction reads a product with a broadcast (softmax's gradient)."""
    broadcast: set[Value] = set()
    products: set[Value] = set()
    for equation in program.equations:
        if equation.kind == "broadcast_in_dim" and any(program.types[value].shape for value in equation.reads):
            broadcast.update(equation.outputs)
        elif equation.kind in ("mul", "div") and not (broadcast | products).isdisjoint(equation.reads):
            products.update(equation.outputs)
        elif equation.kind in REDUCTIONS and not products.isdisjoint(equation.reads):
            return True
    return False


def _transposed_bytes(equation: Equation, program: FlatProgram, makers: Mapping[Value, int]) -> int:
    """Return the bytes of transposed operands that XLA stores while a convolution runs; 0 except on CPUs.

    The CPU kernels read images as (batch, space, features) and filters as (space, in, out); a gradient of filters reads
    both in other orders. Operands that XLA computes while it transposes are not counted.
    """
    if equation.kind not in CONVOLUTIONS or program.platform != "cpu":
        return 0
    dimensions = equation.origin.params["dimension_numbers"]
    batch, features, *space = dimensions.lhs_spec
    outputs, inputs, *filter_space = dimensions.rhs_spec
    orders = (batch, *space, features), (*filter_space, inputs, outputs)
    return sum(
        bytes_of(var.aval)
        for atom, var, order in zip(equation.inputs, equation.origin.invars, orders, strict=True)
        if _is_moved(order, var.aval.shape) and not _is_computed_again(atom, program, makers)
    )


def _is_moved(order: Sequence[int], shape: Sequence[int]) -> bool:
    wide = [axis for axis in order if shape[axis] > 1]
    return wide != sorted(wide)


def _is_computed_again(atom: object, program: FlatProgram, makers: Mapping[Value, int]) -> bool:
    while isinstance(atom, int) and atom in makers:
        maker = program.equations[makers[atom]]
        if maker.kind not in VIEWS:
            return is_repeated(maker, program.equations, makers)
        atom = maker.inputs[0]
    return False
