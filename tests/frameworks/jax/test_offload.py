"""Copies to host memory: applied if the device has a host space, refused otherwise."""

from typing import Any

import jax
import pytest

import lowtide
import lowtide.jax
from lowtide.core.errors import UnsupportedError
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, StepKind
from lowtide.frameworks.jax.emit.run_plan import copies_of, run_plan
from lowtide.frameworks.jax.reading.read import read_program
from tests.frameworks.jax.programs import blocks_arguments, blocks_step, close

HOST = Host(bandwidth_bytes_per_s=1e12)


@pytest.fixture(scope="module")
def program() -> Any:
    return jax.jit(blocks_step), blocks_arguments()


@pytest.fixture(scope="module")
def plan(program: Any) -> Plan:
    graph = HOST.added_to(lowtide.read(program))
    planned = lowtide.minimize(graph, budget="60%", allow=["reorder", "offload"], effort="fast").plan
    assert (planned.kinds == StepKind.COPY_IN).any()
    return planned


def test_copies_of_a_plan_use_pinned_host_and_keep_values(program: Any, plan: Plan) -> None:
    """Values are checked on the CPU, where XLA drops the copies; the copies are checked as lowered for CUDA."""
    translation = read_program(lowtide.jax.JaxModel(program).program)
    runs, copies = plan.order().tolist(), copies_of(plan, translation)

    def carried_out(*leaves: Any) -> Any:
        return run_plan(translation, runs, leaves, copies=copies)

    leaves = jax.tree.leaves(program[1])
    assert close(jax.jit(carried_out)(*leaves), jax.tree.leaves(program[0](*program[1])))
    text = jax.jit(carried_out).trace(*leaves).lower(lowering_platforms=("cuda",)).as_text()
    back = int((plan.kinds == StepKind.COPY_IN).sum())
    assert text.count('_xla_buffer_placement = "pinned_host"') == int((plan.kinds == StepKind.COPY_OUT).sum())
    assert text.count('_xla_buffer_placement = "device"') == back > 0


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices have a host space")
def test_the_cpu_has_no_separate_host_space(program: Any, plan: Plan) -> None:
    with pytest.raises(UnsupportedError, match="pinned_host is the memory of the device") as refused:
        lowtide.apply(plan, program, host=HOST)
    assert "\n" not in str(refused.value)
    with pytest.raises(UnsupportedError, match="leave out offload"):
        lowtide.jax.fit(blocks_step, "50%", example_args=program[1], allow=["recompute", "offload"])
