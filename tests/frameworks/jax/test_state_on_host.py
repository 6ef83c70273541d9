"""Optimizer state in host memory: which arguments are state, equal values, and the memory of an absent GPU."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import lowtide.jax
from lowtide.frameworks.jax.fitting import fit as fitting
from lowtide.frameworks.jax.fitting.host_state import state_leaves
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.traced import trace
from tests.frameworks.jax.programs import blocks_arguments, blocks_loss, close, run_on_devices

BLOCKS = 6
ALLOWED = ("reorder", "share", "recompute", "offload")


def _adam_step(weights: Any, state: Any, x: Any) -> Any:
    loss, gradients = jax.value_and_grad(blocks_loss)(weights, x)
    count, first, second = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, second, gradients)
    scale = jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
    weights = jax.tree.map(
        lambda w, m, v: w - 1e-3 * (scale * m / (jnp.sqrt(v) + 1e-8) + 0.01 * w), weights, first, second
    )
    return weights, (count, first, second), loss


def adam_arguments(batch: int = 64) -> tuple[Any, Any, Any]:
    """Return weights, the state of Adam, and a batch."""
    weights, x = jax.tree.map(jnp.asarray, blocks_arguments(batch, BLOCKS))
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return weights, (jnp.zeros(()), zeros, jax.tree.map(jnp.zeros_like, weights)), x


def _bytes_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


STEP = jax.jit(_adam_step, donate_argnums=(0, 1))


def _momentum_step(weights: Any, momentum: Any, x: Any) -> Any:
    loss, gradients = jax.value_and_grad(blocks_loss)(weights, x)
    norm = jnp.sqrt(sum(jnp.sum(each**2) for each in jax.tree.leaves(gradients)))
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g / norm, momentum, gradients)
    return momentum, loss, jax.tree.map(lambda w, m: w - 0.1 * m, weights, momentum)


@pytest.mark.parametrize("step", [_adam_step, _momentum_step])
def test_state_is_paired_with_the_result_that_replaces_it(step: Callable[..., Any]) -> None:
    weights, state, x = adam_arguments()
    given = (weights, state if step is _adam_step else state[1], x)
    traced = trace(jax.jit(step, donate_argnums=(0, 1)), given)
    arguments = jax.tree_util.tree_leaves_with_path(jax.tree.unflatten(traced.in_tree, range(len(traced.structs)))[0])
    names = [jax.tree_util.keystr(path) for path, _ in arguments]
    results = jax.tree_util.tree_leaves_with_path(
        jax.tree.unflatten(traced.out_tree, range(len(traced.jaxpr.out_avals)))
    )
    ends = [jax.tree_util.keystr(path) for path, _ in results]
    found = {
        names[leaf.argument]: ends[leaf.result] for leaf in state_leaves(flatten(traced.jaxpr, "", traced.donated))
    }
    wanted = [name for name in names if name.startswith("[1]") and name != "[1][0]"]
    assert sorted(found) == sorted(wanted)
    moved = {name: name if step is _adam_step else name.replace("[1]", "[0]", 1) for name in wanted}
    assert found == moved


def test_arguments_that_are_not_donated_are_not_state() -> None:
    traced = trace(jax.jit(_adam_step, donate_argnums=0), adam_arguments())
    assert not state_leaves(flatten(traced.jaxpr, "", traced.donated))


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> lowtide.jax.FittedFunction:
    """A step without room for its state. On a CPU, XLA drops the copies but keeps the kinds of memory."""
    monkeypatch.setattr(fitting, "has_host_space", lambda: True)
    weights, state, x = adam_arguments()
    figures = jax.jit(STEP).lower(weights, state, x).compile().memory_analysis()
    budget = f"{_bytes_of((weights, x)) + figures.temp_size_in_bytes} B"
    return lowtide.jax.fit(STEP, budget, example_args=(weights, state, x), allow=ALLOWED)


def test_state_stays_on_the_host_between_calls_with_equal_values(fitted: lowtide.jax.FittedFunction) -> None:
    assert fitted.fits
    assert 0 < fitted.state_on_host_bytes <= _bytes_of(adam_arguments()[1])
    assert "state on host" in str(fitted)
    weights, state, x = fitted.place(*adam_arguments())
    other_weights, other_state, _ = adam_arguments()
    for _ in range(3):
        before = state
        weights, state, loss = fitted(weights, state, x)
        other_weights, other_state, other_loss = STEP(other_weights, other_state, x)
        on_host = [leaf for leaf in jax.tree.leaves(state) if leaf.sharding.memory_kind == "pinned_host"]
        assert _bytes_of(on_host) == fitted.state_on_host_bytes
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before[1:]))
        assert close((weights, state, loss), (other_weights, other_state, other_loss))
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(weights)} == {"device"}


def test_calls_move_arguments_and_accept_other_shapes(fitted: lowtide.jax.FittedFunction) -> None:
    weights, state, x = fitted(*adam_arguments())[:2] + adam_arguments()[2:]
    smaller = x[:32]
    expected = STEP(*jax.tree.map(jnp.copy, jax.device_get((weights, state))), smaller)
    assert close(fitted(weights, state, smaller), expected)
    assert close(fitted(*jax.device_get(adam_arguments())), STEP(*adam_arguments()))


def test_state_is_not_moved_for_budgets_that_do_not_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "has_host_space", lambda: True)
    for budget, transient in (("80%", False), ("1 GiB", True)):
        found = lowtide.jax.fit(STEP, budget, example_args=adam_arguments(), allow=ALLOWED, transient=transient)
        assert not found.state_on_host_bytes


def test_a_budget_that_fits_keeps_state_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "has_host_space", lambda: True)
    found = lowtide.jax.fit(STEP, "1 GiB", example_args=adam_arguments(), allow=ALLOWED)
    assert found.fits
    assert not found.state_on_host_bytes
    assert len(found.tried) == 1


_ON_A_MESH = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import lowtide.jax
from lowtide.frameworks.jax.fitting import fit as fitting
from tests.frameworks.jax.programs import close
from tests.frameworks.jax.test_state_on_host import ALLOWED, STEP, adam_arguments
fitting.has_host_space = lambda: True
mesh = Mesh(np.array(jax.devices()), ("data",))
assert mesh.size == 4
whole, parts = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
def placed():
    return jax.tree.map(lambda each: jax.device_put(each, parts if each.ndim else whole), adam_arguments())
held = lowtide.jax.measure_compiled(STEP, placed()).figures.total_bytes
fitted = lowtide.jax.fit(STEP, f"{held - 12000} B", example_args=placed(), allow=["offload"], progress=False)
given, expected = fitted.place(*placed()), placed()
for _ in range(2):
    given = [*fitted(*given)[:2], given[2]]
    expected = [*STEP(*expected)[:2], expected[2]]
assert fitted.fits and close(given, expected)
state = [each for each in jax.tree.leaves(given[1]) if each.sharding.memory_kind == "pinned_host"]
assert sum(each.nbytes for each in state) == 4 * fitted.state_on_host_bytes > 0
"""


def test_state_of_a_mesh_stays_on_the_hosts_of_its_devices() -> None:
    run_on_devices(_ON_A_MESH, 4)
