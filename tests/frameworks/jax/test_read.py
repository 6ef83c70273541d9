"""JAX functions as graphs: kernels, sizes, arithmetic, effects, accepted sources."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowtide
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Lifetime
from tests.frameworks.jax.programs import blocks_arguments, blocks_step, equal_bits, recurrent_arguments, recurrent_step

MATRIX = jax.ShapeDtypeStruct((64, 64), np.float32)


def _kinds(function: Any, *examples: Any) -> list[str]:
    return list(lowtide.read((jax.jit(function), examples)).op_kinds)


def test_a_chain_of_elementwise_equations_is_one_kernel() -> None:
    assert _kinds(lambda x: jnp.tanh(2 * x + 1) - x, MATRIX) == ["sub"]


def test_shared_values_are_stored_if_expensive_and_repeated_if_cheap() -> None:
    def shared(function: Any) -> list[str]:
        return _kinds(lambda x: (function(x) @ x, function(x).sum()), MATRIX)

    assert shared(lambda x: x @ x) == ["dot_general", "dot_general", "reduce_sum"]
    both = lambda function: _kinds(lambda x: (function(x).sum(0), function(x).sum(1)), MATRIX)  # noqa: E731
    assert both(lambda x: x + 1) == ["reduce_sum", "reduce_sum"]
    assert both(jnp.tanh) == ["tanh", "reduce_sum", "reduce_sum"]


def test_a_view_is_neither_an_op_nor_a_buffer() -> None:
    graph = lowtide.read((jax.jit(lambda x: (x @ x).reshape(16, 256) * 2), (MATRIX,)))
    assert list(graph.op_kinds) == ["dot_general", "mul"]
    assert graph.n_buffers == 3


def test_floating_point_operations_of_products_and_convolutions_are_exact() -> None:
    graph = lowtide.read((jax.jit(lambda x, y: x @ y), (jnp.ones((4, 5)), jnp.ones((5, 7)))))
    assert graph.flops.tolist() == [2 * 4 * 5 * 7]
    image, kernel = jnp.ones((2, 3, 8, 8)), jnp.ones((6, 3, 3, 3))
    graph = lowtide.read((jax.jit(lambda x, k: jax.lax.conv(x, k, (1, 1), "VALID")), (image, kernel)))
    assert graph.flops.tolist() == [2 * (2 * 6 * 6 * 6) * (3 * 3 * 3)]


def test_donated_inputs_are_freed_after_their_last_use() -> None:
    donating = jax.jit(lambda x, y: x @ y @ y, donate_argnums=0)
    graph = lowtide.read((donating, (MATRIX, MATRIX)))
    assert graph.lifetimes[:2].tolist() == [Lifetime.DONATED, Lifetime.INPUT]


@pytest.mark.parametrize("remat3", [False, True])
def test_checkpointed_regions_are_inlined(remat3: bool) -> None:
    if remat3 and jax.__version_info__ < (0, 12):
        pytest.skip("this JAX inlines its new checkpoints itself, behind barriers")

    def loss(block: Any) -> Any:
        return lambda x: jax.grad(lambda x: block(block(x)).sum())(x)

    def block(x: Any) -> Any:
        return jnp.tanh(x @ x)

    plain = lowtide.read((jax.jit(loss(block)), (MATRIX,)))
    try:
        if remat3:
            jax.config.update("jax_remat3", True)
        assert lowtide.read((jax.jit(loss(jax.checkpoint(block))), (MATRIX,))).n_ops == plain.n_ops
    finally:
        if remat3:
            jax.config.update("jax_remat3", False)


def test_the_body_of_a_loop_is_a_callee_that_is_planned_once() -> None:
    graph = lowtide.read((jax.jit(recurrent_step), recurrent_arguments(8)))
    loops = [op for op in graph.ops() if op.kind == "scan"]
    assert [len(op.callees) for op in loops] == [1, 1]
    assert all(graph.subgraphs[op.callees[0]].n_ops > 0 for op in loops)


def test_equations_with_effects_are_ordered() -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0], ordered=True)
        return x @ x

    graph = lowtide.read((jax.jit(printing), (MATRIX,)))
    ordered = [op.kind for op in graph.ops() if op.ordered]
    assert len(ordered) == 1
    assert "dot_general" not in ordered


def test_a_closed_jaxpr_has_the_graph_of_its_function() -> None:
    closed = jax.make_jaxpr(blocks_step)(*blocks_arguments())
    expected = lowtide.read((jax.jit(blocks_step), blocks_arguments()))
    graph = lowtide.read(closed)
    assert list(graph.op_kinds) == list(expected.op_kinds)
    assert graph.sizes.tolist() == expected.sizes.tolist()


def test_a_plain_function_is_read_by_jax_if_its_examples_are_jax_structs() -> None:
    assert lowtide.read((lambda x: x @ x, (MATRIX,))).n_ops == 1


def test_a_custom_derivative_is_kept() -> None:
    @jax.custom_jvp
    def odd(x: Any) -> Any:
        return jnp.sin(x)

    odd.defjvps(lambda tangent, _, x: 5 * tangent)
    program = (jax.jit(lambda x: (odd(x) @ x).sum()), (jnp.ones((4, 4)),))
    applied = lowtide.apply(lowtide.minimize(lowtide.read(program)).plan, program)
    assert equal_bits(jax.grad(applied)(*program[1]), jax.jit(jax.grad(program[0]))(*program[1]))


def test_xla_keeps_the_recomputation_of_a_plan() -> None:
    program = (jax.jit(blocks_step), blocks_arguments())
    graph = lowtide.read(program)
    planned = lowtide.minimize(graph, budget="50%", allow=["reorder", "share", "recompute"], effort="fast")
    again = [graph.op_kinds[op] for op in planned.plan.order().tolist()].count("dot_general")
    applied = lowtide.apply(planned.plan, program)
    text = applied.lower(*program[1]).compile().as_text()
    assert text.count(" dot(") == again > list(graph.op_kinds).count("dot_general")
    measured = lowtide.measure(planned.plan, program)
    assert measured.outputs_equal
    assert measured.after_bytes == planned.peak_bytes["device"] < measured.before_bytes


@pytest.mark.parametrize("stage", ["lowered", "compiled"])
def test_a_lowered_or_compiled_object_is_read_as_an_hlo_module_only(stage: str) -> None:
    lowered = jax.jit(blocks_step).lower(*blocks_arguments())
    program = lowered if stage == "lowered" else lowered.compile()
    assert lowtide.read(program).n_ops > 1
    with pytest.raises(UnsupportedError, match=r"lowtide.read takes it as an HLO module"):
        lowtide.jax.read(program)


@pytest.mark.parametrize("source", [jax.jit(blocks_step), (jax.jit(blocks_step),)], ids=["function", "tuple"])
def test_a_function_without_examples_raises_a_message_of_one_line(source: Any) -> None:
    with pytest.raises(UsageError, match="example arguments") as refused:
        lowtide.read(source)
    assert "\n" not in str(refused.value)
