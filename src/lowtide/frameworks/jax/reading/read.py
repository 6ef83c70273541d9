"""A flat program becomes a graph: one op a kernel, one buffer a stored value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from jax.extend.core import ClosedJaxpr

from lowtide.core.index_spaces import BufferId
from lowtide.engine.costs import PLAIN_MACHINE
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value
from lowtide.frameworks.jax.reading.callees import bodies_of, kept_results
from lowtide.frameworks.jax.reading.sizes import bytes_of, flops_of
from lowtide.frameworks.jax.reading.sources import source_of
from lowtide.frameworks.jax.reading.stored import Kernel, Kernels, fusion_kind, kernels_of
from lowtide.frameworks.jax.reading.unmodeled import unmodeled

Counted = Literal["everything", "temporaries", "callee"]
"""Whose bytes are in the peak: all but constants; what XLA calls temp bytes; what a body needs beside its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxTranslation:
    """A graph and the way back to the flat program it was read from."""

    program: FlatProgram
    kernels: Kernels
    """The op with number n is the kernel at position n."""
    graph: Graph
    buffers: Mapping[Value, BufferId]
    """The buffer of every stored value."""


def read_program(program: FlatProgram, counted: Counted = "everything", kept: int | None = None) -> JaxTranslation:
    """Read a flat program into a graph of kernels.

    Inputs stay with the caller or, where they are donated, go after their last use; constants are persistent. With
    "temporaries" what comes from the caller and what goes back to it is not in the peak. Only the first `kept` results
    stay to the end, by default all.
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
    for number, kernel in enumerate(kernels.kernels):
        add_kernel(builder, number, kernel, program, kernels, buffers)
    for sentence in unmodeled(program):
        builder.note(sentence)
    return JaxTranslation(program=program, kernels=kernels, graph=builder.build(), buffers=buffers)


def read_body(equation: Equation, body: ClosedJaxpr, name: str) -> JaxTranslation:
    """Read what a loop, a branch or a call runs."""
    return read_program(flatten(body, name), "callee", kept_results(equation.origin, body))


def add_kernel(
    builder: GraphBuilder,
    number: int,
    kernel: Kernel,
    program: FlatProgram,
    kernels: Kernels,
    buffers: Mapping[Value, BufferId],
    with_callees: bool = True,
) -> None:
    """Add the op of a kernel to a graph that has the buffers of what it reads and writes."""
    equation = program.equations[kernel.root]
    name = f"{equation.kind}.{number}"
    callees: list[str] = []
    for label, body in bodies_of(equation.origin) if with_callees else ():
        callee = read_body(equation, body, f"{program.name}/{name}.{label}").graph
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
        callees=callees,
        source=source_of(equation),
    )


def _pairs(
    kernel: Kernel, program: FlatProgram, kernels: Kernels, buffers: Mapping[Value, BufferId]
) -> Iterator[tuple[BufferId, BufferId]]:
    """Iterate what an elementwise kernel may overwrite: stored values of the shape and bytes of its result."""
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
