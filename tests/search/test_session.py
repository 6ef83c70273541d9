"""A session after any edits is what building the edited graph from nothing gives."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.errors import GraphError
from lowtide.graph import Graph, GraphBuilder, Lifetime
from lowtide.graph.edit import NewOp
from lowtide.search import Session
from tests.oracles.plans import callee_plans
from tests.strategies import graphs


class Model:
    """The edited graph as plain records, by handle."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.buffers = [graph.buffer(buffer) for buffer in range(graph.n_buffers)]
        self.ops = {op: graph.op(op) for op in range(graph.n_ops)}

    def build(self, order: list[int]) -> Graph:
        """Build the graph from nothing, its ops in an order of handles."""
        builder = GraphBuilder(self.graph.name)
        for name, subgraph in self.graph.subgraphs.items():
            builder.add_subgraph(name, subgraph)
        for space in self.graph.spaces:
            builder.add_space(space.name, alignment=space.alignment, bandwidth_bytes_per_s=space.bandwidth_bytes_per_s)
        for buffer in self.buffers:
            builder.add_buffer(buffer.name, buffer.size_bytes, buffer.lifetime, space=buffer.space)
        place = {handle: number for number, handle in enumerate(order)}
        for op in (self.ops[handle] for handle in order):
            builder.add_op(
                op.name,
                op.kind,
                reads=op.reads,
                writes=op.writes,
                mutates=op.mutates,
                after=[place[handle] for handle in op.after],
                in_place=op.in_place,
                scratch_bytes=op.scratch_bytes,
                pure=op.pure,
                ordered=op.ordered,
                cost=op.cost,
                flops=op.flops,
                callees=op.callees,
                device=op.device,
            )
        return builder.build()


def dependencies(session: Session) -> list[tuple[int, int]]:
    """Direct dependencies by handle."""
    handles = session.order.tolist()
    rows = session.graph.structure.predecessors
    return [(handles[earlier], handles[op]) for op, row in enumerate(rows) for earlier in row]


def edit(session: Session, model: Model, rng: Random, number: int) -> None:
    """Make one random edit in both; what cannot be done must change nothing."""
    handles = session.order.tolist()
    pick = rng.choice(handles) if handles else 0
    other = rng.choice(handles) if handles else 0
    before = session.graph
    try:
        match rng.choice(["add", "add", "remove", "edge", "edge", "no edge", "read", "read"]):
            case "add":
                written = session.add_buffer(f"new{number}", rng.choice((0, 2, 4)), Lifetime.INTERMEDIATE)
                model.buffers.append(session.graph.buffer(written))
                before = session.graph
                reads = [rng.randrange(session.graph.n_buffers) for _ in range(rng.randint(0, 2))]
                pairs = [(read, written) for read in reads if read != written][:1]
                op = NewOp(
                    name=f"added{number}",
                    kind="op",
                    reads=reads,
                    writes=[written],
                    mutates=[rng.randrange(session.graph.n_buffers)] if rng.random() < 0.2 else [],
                    after=[other] if handles and rng.random() < 0.3 else [],
                    in_place=pairs,
                    scratch_bytes=rng.choice((0, 3)),
                    ordered=rng.random() < 0.1,
                )
                handle = session.add_op(op, pick if handles and rng.random() < 0.8 else None)
                placed = session.graph.op(session.order.tolist().index(handle))
                model.ops[handle] = replace(placed, after=tuple(op.after))
            case "remove":
                session.remove_op(pick)
                del model.ops[pick]
                for handle, op in model.ops.items():
                    model.ops[handle] = replace(op, after=tuple(a for a in op.after if a != pick))
            case "edge":
                session.add_edge(pick, other)
                model.ops[other] = replace(model.ops[other], after=(*model.ops[other].after, pick))
            case "no edge":
                session.remove_edge(pick, other)
                kept = tuple(a for a in model.ops[other].after if a != pick)
                model.ops[other] = replace(model.ops[other], after=kept)
            case _:
                op = model.ops[pick]
                old = rng.choice(op.reads) if op.reads else 0
                new = rng.randrange(session.graph.n_buffers) if session.graph.n_buffers else 0
                session.replace_read(pick, old, new)
                model.ops[pick] = replace(
                    op,
                    reads=tuple(new if read == old else read for read in op.reads),
                    in_place=tuple((new if read == old else read, written) for read, written in op.in_place),
                )
    except (GraphError, KeyError):
        assert session.graph is before


@settings(max_examples=200)
@given(graphs(12), st.integers(0, 10**6), st.booleans())
def test_after_any_edits_it_is_the_graph_built_from_nothing(graph: Graph, seed: int, in_place: bool) -> None:
    rng = Random(seed)
    callees = callee_plans(graph)
    session = Session(graph, np.arange(graph.n_ops, dtype=np.int32), callees=callees, in_place=in_place)
    model = Model(graph)
    for number in range(12):
        known = set(dependencies(session))
        edit(session, model, rng, number)
        place = {handle: number for number, handle in enumerate(session.order.tolist())}
        pairs = [(earlier, later) for earlier, later in known if earlier in place and later in place]
        assert all(place[earlier] < place[later] for earlier, later in pairs)
    built = model.build(session.order.tolist())
    problem = Problem(built, callees, in_place)
    assert session.graph.fingerprint == built.fingerprint
    assert session.evaluate().peaks.tolist() == problem.evaluate(problem.given_order()).peaks.tolist()
    for space in range(len(graph.spaces)):
        cutter = _native.ClosureCutter(problem.native, space, in_place)
        for place, handle in enumerate(session.order.tolist()):
            assert session.bound(handle, space) == cutter.cut(place)[0]


def chain() -> Session:
    """Three ops in a row, the last of which reads both results."""
    builder = GraphBuilder("chain")
    a, b, c = builder.add_buffer("a", 4), builder.add_buffer("b", 8), builder.add_buffer("c", 1, Lifetime.OUTPUT)
    builder.add_op("make", "make", writes=[a])
    builder.add_op("grow", "grow", reads=[a], writes=[b])
    builder.add_op("use", "use", reads=[a, b], writes=[c])
    return Session(builder.build(), np.arange(3, dtype=np.int32))


def test_a_value_computed_again_frees_the_first_copy_and_can_be_taken_back() -> None:
    session = chain()
    start = session.state()
    assert session.evaluate().peaks[0] == 13
    again = session.add_buffer("a again", 4)
    session.add_op(NewOp(name="make again", kind="make", writes=[again]), before=2)
    session.replace_read(2, 0, again)
    assert session.order.tolist() == [0, 1, 3, 2]
    assert session.problem.evaluate(session.problem.given_order()).peaks[0] == 13
    assert session.worst_op() == 2
    session.restore(start)
    assert session.order.tolist() == [0, 1, 2]
    assert session.evaluate().peaks[0] == 13


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda s: s.add_edge(2, 0), "would wait for itself"),
        (lambda s: s.remove_edge(0, 2), "no control edge"),
        (lambda s: s.remove_op(0), "still used"),
        (lambda s: s.remove_op(9), "no op 9"),
        (lambda s: s.replace_read(1, 1, 0), "cannot read buffer"),
        (lambda s: s.replace_read(0, 0, 1), "must read"),
        (lambda s: s.add_op(NewOp(name="use", kind="use")), "already"),
        (lambda s: s.add_op(NewOp(name="x", kind="x", reads=[7])), "uses buffer 7"),
        (lambda s: s.add_op(NewOp(name="x", kind="x", scratch_bytes=-1)), "scratch"),
        (lambda s: s.add_op(NewOp(name="x", kind="x", callees=("f",))), "not among the subgraphs"),
        (lambda s: s.add_op(NewOp(name="x", kind="x", reads=[0], in_place=[(0, 0)])), "pair"),
        (lambda s: s.add_op(NewOp(name="x", kind="x", reads=[2]), before=0), "would wait for itself"),
        (lambda s: s.add_buffer("a", 1), "already"),
        (lambda s: s.add_buffer("x", -1), "out of range"),
        (lambda s: s.restore(None), "cannot go back"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(attempt, message: str) -> None:
    session = chain()
    state = session.state()
    with pytest.raises(GraphError, match=message):
        attempt(session)
    assert session.state() is state
