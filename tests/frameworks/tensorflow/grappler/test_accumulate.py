"""Sums as running accumulations: the same values, less memory."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.tensorflow.grappler.accumulate import accumulate_sums, can_accumulate
from tests.examples import examples
from tests.oracles.replay import replay

_MODULUS = 2**61 - 1


def _values(graph: Graph) -> list[int | None]:
    """Run a program on integers: sums and accumulations add up, every other op mixes what it touches."""
    now: list[int | None] = [
        buffer + 3 if graph.buffer(buffer).lifetime.exists_at_start else None for buffer in range(graph.n_buffers)
    ]
    for number in range(graph.n_ops):
        op = graph.op(number)
        read = [now[buffer] or 0 for buffer in op.reads]
        for buffer in (*op.mutates, *op.writes):
            old = now[buffer] or 0
            if op.kind == "AddN":
                now[buffer] = sum(read) % _MODULUS
            elif op.kind == "ZerosLike":
                now[buffer] = 0
            elif op.kind == "AssignAdd":
                now[buffer] = (old + sum(read)) % _MODULUS
            elif op.kind != "DestroyTemporaryVariable":
                now[buffer] = hash((op.name, old, buffer, tuple(read))) % _MODULUS
    return now


def _program(seed: int) -> Graph:
    """Return a program with sums of sums, of inputs, of repeated operands and of buffers that change between."""
    random = Random(seed)
    builder = GraphBuilder("sums")
    buffers = [
        builder.add_buffer(f"x{k}", 8, random.choice([Lifetime.INPUT, Lifetime.DONATED, Lifetime.PERSISTENT]))
        for k in range(random.randint(0, 2))
    ]
    for number in range(random.randint(1, 14)):
        reads = random.choices(buffers, k=random.randint(1, 5)) if buffers else []
        lifetime = Lifetime.OUTPUT if random.random() < 0.2 else Lifetime.INTERMEDIATE
        if buffers and random.random() < 0.2:
            builder.add_op(f"n{number}", "Mix", reads=reads[:1], mutates=[random.choice(buffers)], pure=False)
            continue
        result = builder.add_buffer(f"b{number}", 8, lifetime)
        kind = "AddN" if reads and random.random() < 0.5 else "Mix"
        after = random.sample(range(number), min(number, random.choice((0, 0, 1, 2))))
        builder.add_op(f"n{number}", kind, reads=reads, writes=[result], after=after, cost=float(len(reads)))
        buffers.append(result)
    return builder.build()


@examples(500)
@given(st.integers(0, 10**6))
def test_every_buffer_ends_with_the_same_value(seed: int) -> None:
    graph = _program(seed)
    sums = [op for op, kind in enumerate(graph.op_kinds) if kind == "AddN" and can_accumulate(graph, op)]
    rewritten = accumulate_sums(graph, sums)
    assert _values(rewritten) == _values(graph)
    assert rewritten.cost.sum() == pytest.approx(graph.cost.sum())
    assert {op.name for op in map(graph.op, range(graph.n_ops))} <= set(rewritten.op_names)


@given(st.integers(0, 10**6))
def test_what_had_to_come_first_still_does(seed: int) -> None:
    """A control edge of a sum goes to its zeros if it comes from before the first operand, else to its end."""
    graph = _program(seed)
    sums = [op for op, kind in enumerate(graph.op_kinds) if kind == "AddN" and can_accumulate(graph, op)]
    rewritten = accumulate_sums(graph, sums)
    place = {name: op for op, name in enumerate(rewritten.op_names)}
    for op in range(graph.n_ops):
        name = graph.op_names[op]
        parts = [place[name], *([place[f"{name}/tmp_var_zeros"]] if op in sums else [])]
        kept = {rewritten.op_names[earlier] for part in parts for earlier in rewritten.op(part).after}
        assert kept == {graph.op_names[earlier] for earlier in graph.op(op).after}
    verify(rewritten, Plan.baseline(rewritten))
    replay(rewritten, Plan.baseline(rewritten))


def test_operands_that_come_one_after_the_other_need_the_space_of_two() -> None:
    builder = GraphBuilder("gradients")
    weights = builder.add_buffer("w", 100, Lifetime.PERSISTENT)
    parts = [builder.add_buffer(f"g{k}", 100) for k in range(8)]
    total = builder.add_buffer("sum", 100, Lifetime.OUTPUT)
    for part in parts:
        builder.add_op(f"part{part}", "Part", reads=[weights], writes=[part])
    builder.add_op("sum", "AddN", reads=parts, writes=[total])
    graph = builder.build()
    rewritten = accumulate_sums(graph, [8])
    assert simulate(graph, Plan.baseline(graph)).peak_bytes["device"] == 900
    assert simulate(rewritten, Plan.baseline(rewritten)).peak_bytes["device"] == 200
    assert rewritten.op_names[-1] == "sum"
    assert [name for name in rewritten.op_names if "tmp_var" in name][:2] == [
        "sum/tmp_var_zeros",
        "sum/tmp_var_accum_0",
    ]


def test_names_that_are_taken_are_avoided() -> None:
    builder = GraphBuilder("names")
    a, b = builder.add_buffer("a", 8), builder.add_buffer("b", 8)
    builder.add_op("s/tmp_var_zeros", "Mix", writes=[a])
    builder.add_op("s", "AddN", reads=[a, a, a], writes=[b])
    assert "s'/tmp_var_zeros" in accumulate_sums(builder.build(), [1]).op_names


@pytest.mark.parametrize("what", ["size", "impure", "two results", "mutation", "no operand"])
def test_what_is_no_plain_sum_is_refused(what: str) -> None:
    builder = GraphBuilder("refused")
    a = builder.add_buffer("a", 4 if what == "size" else 8)
    b, c = builder.add_buffer("b", 8), builder.add_buffer("c", 8)
    builder.add_op("a", "Mix", writes=[a])
    builder.add_op(
        "s",
        "AddN",
        reads=[] if what == "no operand" else [a, a, a],
        writes=[b, c] if what == "two results" else [b],
        mutates=[a] if what == "mutation" else [],
        pure=what != "impure",
    )
    graph = builder.build()
    assert not can_accumulate(graph, 1)
    with pytest.raises(UsageError, match="op 's' is not a pure sum of buffers of one size"):
        accumulate_sums(graph, [1])
