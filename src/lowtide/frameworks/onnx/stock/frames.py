"""Allocations of the stock runtime, one frame per run of a graph."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnx import GraphProto, NodeProto

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.frameworks.onnx.operators.nodes import int_of, operator_of, subgraphs_of
from lowtide.frameworks.onnx.operators.tables import METADATA
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.stock.default_order import default_order_of
from lowtide.frameworks.onnx.stock.reuse import Allocations, CalledRuns, StockRole, StockStep, stock_allocations

_SOME_RUNS = 3
"""Assumed for loops of unknown length."""
_MOST_EVENTS = 10**5
"""For repeated bodies."""


@dataclass(frozen=True)
class StockFrame:
    """A graph as the stock runtime runs it once.

    Source: If, Loop and Scan of ONNX Runtime 1.31. Bodies run in the default order, in frames without a pattern.
    """

    translation: Translation
    graph: GraphProto

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.translation.graph)

    @cached_property
    def calls(self) -> Mapping[int, CalledRuns]:
        return dict(_calls(self.translation, self.graph))

    def allocations(self, nodes: Sequence[int]) -> Allocations:
        steps = list(_steps(self.translation, self.graph, nodes))
        workspaces = self.problem.transient.sum(1)
        return stock_allocations(self.translation.graph, self.translation.forms, steps, workspaces, self.calls)


def _steps(translation: Translation, nodes_of: GraphProto, nodes: Sequence[int]) -> Iterator[StockStep]:
    values, ops = translation.values, translation.graph
    op_of = {node: op for op, members in enumerate(translation.nodes_of_ops) for node in members}
    shapes = {node for node in op_of if operator_of(nodes_of.node[node]) in METADATA}
    results = {values[nodes_of.node[node].output[0]].buffer for node in shapes}
    begun: set[int] = set()
    for place in nodes:
        node, op = nodes_of.node[place], op_of.get(place)
        if op is None:
            continue
        if place in shapes:
            yield StockStep(op, [values[node.input[0]].buffer], [values[node.output[0]].buffer], is_op=False)
        elif op not in begun:
            begun.add(op)
            reads = [*ops.reads[op].tolist(), *ops.mutates[op].tolist()]
            yield StockStep(op, reads, [buffer for buffer in ops.writes[op].tolist() if buffer not in results])


def has_frames(translation: Translation) -> bool:
    """Return whether all callees have frames: no functions or unknown operators."""
    bodies = translation.bodies
    return all(name in bodies and has_frames(bodies[name].translation) for name in translation.graph.called)


def _calls(translation: Translation, graph: GraphProto) -> Iterator[tuple[int, CalledRuns]]:
    for op, names in enumerate(translation.graph.callees):
        bodies = [translation.bodies[name] for name in names if name in translation.bodies]
        if not bodies or len(bodies) < len(names):
            continue
        node = graph.node[bodies[0].node]
        inner = dict(subgraphs_of(node))
        runs = [_one_run(body.translation, inner[body.label]) for body in bodies]
        if node.op_type == "If":
            yield op, CalledRuns(max(runs, key=lambda run: run.peak_bytes))
        elif node.op_type == "Loop":
            yield op, _loop(translation.graph, node, inner[bodies[0].label], bodies[0].translation.graph, runs[0])
        elif node.op_type == "Scan":
            body, held = inner[bodies[0].label], int(translation.graph.scratch[op])
            yield op, _scan(node, body, bodies[0].translation.graph, runs[0], held)


def _one_run(translation: Translation, graph: GraphProto) -> Allocations:
    return StockFrame(translation, graph).allocations(default_order_of(graph))


def _loop(outer: Graph, node: NodeProto, body: GraphProto, graph: Graph, run: Allocations) -> CalledRuns:
    """Return a Loop's runs; collected pieces live until its end."""
    n_carried = len(body.input) - 2
    whole: Mapping[str, int] = dict(zip(outer.buffer_names, outer.sizes.tolist(), strict=True))
    piece: Mapping[str, int] = dict(zip(graph.buffer_names, graph.sizes.tolist(), strict=True))
    collected = {
        value.name: name for value, name in zip(body.output[1 + n_carried :], node.output[n_carried:], strict=False)
    }
    told = [whole[name] // piece[inner] for inner, name in collected.items() if piece.get(inner) and name in whole]
    kept = {buffer for buffer, name in enumerate(graph.buffer_names) if name in collected}
    return replace(_repeated(run, max(told, default=0) or _SOME_RUNS, kept), results_last=True)


def _scan(node: NodeProto, body: GraphProto, graph: Graph, run: Allocations, held: int) -> CalledRuns:
    sizes: Mapping[str, int] = dict(zip(graph.buffer_names, graph.sizes.tolist(), strict=True))
    states = [sizes[value.name] for value in body.input[: len(body.input) - int_of(node, "num_scan_inputs")]]
    made = Allocations()
    for size in states * (held // max(1, sum(states))):
        made.events.append((made.add(size, StockRole.WORKSPACE), True))
    made.splice(_repeated(run, _SOME_RUNS).run)
    return CalledRuns(made)


def _repeated(run: Allocations, count: int, kept: Collection[int] = ()) -> CalledRuns:
    """Run a body `count` times. Results live until the next run ends, those in `kept` to the end."""
    made = Allocations()
    handed_on: list[int] = []
    runs = min(count, max(_SOME_RUNS, _MOST_EVENTS // (1 + len(run.events))))
    for number in range(runs):
        results = made.splice(run)
        if number < runs - 1:
            made.events += [(block, False) for block in handed_on]
        handed_on = [block for buffer, block in results.items() if buffer not in kept]
    return CalledRuns(made)
