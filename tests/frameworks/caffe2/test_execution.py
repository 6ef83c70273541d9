"""Changed nets compute equal bits, with one worker or several in any interleaving."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.caffe2 import Caffe2Model, NetDef, OperatorDef, memonger
from lowtide.caffe2 import plan as plan_net
from lowtide.frameworks.caffe2.nets.named import named_net
from lowtide.frameworks.caffe2.sharing.orders import predecessors
from tests.examples import examples
from tests.frameworks.caffe2.benchmark_nets import load_nets
from tests.oracles.dag_executor import run_dag, run_one_by_one, same_bits
from tests.oracles.random_netdefs import RandomNet, random_netdef

NETS = load_nets()
random_nets = st.builds(random_netdef, st.randoms(use_true_random=False), st.integers(1, 14))


def _stays_right(
    before: NetDef, after: Any, inputs: dict[str, np.ndarray], *, in_parallel: bool, seed: int = 0
) -> None:
    results = list(before.external_output)
    expected = run_one_by_one(before, inputs, results)
    assert same_bits(run_one_by_one(after, inputs, results), expected)
    if in_parallel:
        waits = predecessors(named_net(before))
        for workers in (2, 4):
            assert same_bits(run_dag(after, inputs, results, waits, workers, seed), expected)


@examples(60)
@given(random_nets, st.integers(0, 99))
def test_sharing_across_branches_is_right_in_every_interleaving(made: RandomNet, seed: int) -> None:
    after = memonger.optimize_inference_for_dag(made.net, ["x"], "net")
    _stays_right(made.net, after, made.inputs(), in_parallel=True, seed=seed)


@examples(60)
@given(random_nets)
def test_sharing_in_one_order_is_right_in_that_order(made: RandomNet) -> None:
    sizes = {blob: 64 for op in made.net.op for blob in (*op.input, *op.output)}
    for order in (memonger.topological_sort_traversal, memonger.topological_sort_traversal_longest_path):
        for algorithm in memonger.AssignmentAlgorithm:
            found = memonger.optimize_interference(made.net, ["x", "w"], order, sizes, algorithm)
            memonger.verify_assignments(found.assignments)
            _stays_right(made.net, found.net, made.inputs(), in_parallel=False)
    _stays_right(made.net, memonger.optimize_inference_fast(made.net, []), made.inputs(), in_parallel=False)
    _stays_right(made.net, memonger.release_blobs_when_used(made.net, set()), made.inputs(), in_parallel=False)


@examples(60)
@given(random_nets)
def test_plans_have_the_predicted_peak_and_equal_outputs(made: RandomNet) -> None:
    model = Caffe2Model(made.net, shapes=made.shapes)
    for allow in ((), ("reorder", "share")):
        plan = lowtide.minimize(model.graph, allow=allow, effort="fast").plan
        measured = model.measure(plan)
        assert measured.outputs_equal
        assert measured.after_bytes == plan.peak_bytes["device"]
        _stays_right(made.net, model.apply(plan), made.inputs(), in_parallel=False)
    _stays_right(made.net, plan_net(made.net, made.shapes).net, made.inputs(), in_parallel=False)


@pytest.mark.parametrize("name", ["two_losses", "unrolled_lstm", "inception", "residual"])
def test_shared_gradients_give_the_same_losses_and_parameter_gradients(name: str) -> None:
    made = {
        "two_losses": lambda: NETS.two_losses(3, 8, 4),
        "unrolled_lstm": lambda: NETS.unrolled_lstm(3, 4, 2, training=True),
        "inception": lambda: NETS.inception(1, 2, 6, training=True),
        "residual": lambda: NETS.residual(2, 2, 6, training=True),
    }[name]()
    net, rng = made.net, np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {
        blob: np.asarray(rng.standard_normal(shape) if kind == "float32" else rng.integers(0, 9, shape), kind)
        for blob, (kind, shape) in made.shapes.items()
    }
    losses = [blob for blob in net.external_output if blob.startswith("loss")]
    gradients = [blob for blob in net.external_output if blob not in losses]
    for activations in (False, True):
        shared = memonger.share_grad_blobs(net, losses, gradients, "", share_activations=activations)
        assert _blobs(shared) < _blobs(net)
        assert memonger.verify_graph_equality(net, shared)
        for seed in range(2):
            _stays_right(net, shared, inputs, in_parallel=True, seed=seed)


def _blobs(net: Any) -> int:
    return len({blob for op in net.op for blob in (*op.input, *op.output)})


def test_the_executor_finds_branches_that_share() -> None:
    """Two branches that share a blob are valid in sequence, but not in parallel."""
    made = RandomNet(_two_branches("b"), {"x": [4, 4]})
    shared = _two_branches("a")
    _stays_right(made.net, shared, made.inputs(), in_parallel=False)
    waits = predecessors(named_net(made.net))
    expected = run_one_by_one(made.net, made.inputs(), ["y"])
    runs = [run_dag(shared, made.inputs(), ["y"], waits, 2, seed) for seed in range(20)]
    assert not all(same_bits(run, expected) for run in runs)


def _two_branches(second: str) -> NetDef:
    rows = [("Relu", ["x"], "a"), ("Tanh", ["a"], "c"), ("Tanh", ["x"], second), ("Relu", [second], "d")]
    ops = [
        OperatorDef(type=kind, input=read, output=[write]) for kind, read, write in (*rows, ("Add", ["c", "d"], "y"))
    ]
    return NetDef(op=ops, external_input=["x"], external_output=["y"])
