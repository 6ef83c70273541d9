"""The flows that show the cuts of a proof, for a checker that then needs no flow of its own."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import OpId
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.search.proof import CutFlow, Moves, Proof


def with_flows(proof: Proof, graph: Graph) -> Proof:
    """Return a proof for a graph with the flows that show its cuts and those of its callees; one flow an op named."""
    flowing = _with_flows(proof, graph)
    subgraphs = dict[str, Graph]()
    _collect(graph, subgraphs)
    callees = {name: _with_flows(callee, subgraphs[name]) for name, callee in proof.callees.items()}
    return msgspec.structs.replace(flowing, callees=callees)


def _with_flows(proof: Proof, graph: Graph) -> Proof:
    problem = Problem(graph, in_place=proof.in_place)

    def flow_of(position: int, op: OpId) -> CutFlow:
        waits, uses = _native.ClosureCutter(problem.native, position, proof.in_place).flow(op)
        return CutFlow(uses=_moves(uses), dependencies=_moves(waits))

    spaces = tuple(
        space if space.op is None else msgspec.structs.replace(space, flow=flow_of(position, space.op))
        for position, space in enumerate(proof.spaces)
    )
    return msgspec.structs.replace(proof, spaces=spaces)


def _moves(flat: NDArray[np.int64]) -> Moves:
    sources, targets, moved = flat.reshape(-1, 3).T.tolist()
    return Moves(sources=tuple(sources), targets=tuple(targets), bytes=tuple(moved))


def _collect(graph: Graph, found: dict[str, Graph]) -> None:
    """Collect what a graph calls, and what is called there, by names, which a program has once."""
    for name in graph.called:
        if name not in found:
            found[name] = graph.subgraphs[name]
            _collect(found[name], found)
