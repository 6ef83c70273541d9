"""Branch-safe sharing of gradients and in inference nets is valid in every execution."""

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import GraphError, UnsupportedError
from lowtide.frameworks.caffe2.sharing.memonger_rules import one_pass_renames, token_renames
from lowtide.share import (
    NamedNet,
    NamedOp,
    SharedNet,
    rename_blobs,
    share_branch_safe,
    share_gradients,
    share_inference,
    share_inference_fast,
    sharing_statistics,
    verify_equality,
    verify_in_place,
)
from tests.oracles.named_nets import random_execution, random_net, same_values, touches, training_net, waits

SCOPE = "name_x/"


def _op(kind: str, inputs: str, outputs: str, **fields: object) -> NamedOp:
    return replace(NamedOp(kind=kind, inputs=tuple(inputs.split()), outputs=tuple(outputs.split())), **fields)


def _slots(shared: SharedNet) -> list[list[str]]:
    slots: dict[str, list[str]] = {}
    for blob, slot in shared.renames.items():
        slots.setdefault(slot, []).append(blob)
    return list(slots.values())


def _assert_safe(net: NamedNet, shared: SharedNet) -> None:
    """Assert that two blobs of a slot are never in use at once."""
    before, users = waits(net), touches(net)
    for slot in _slots(shared):
        assert len({net.devices[blob] for blob in slot}) == 1
        for place, one in enumerate(slot):
            for other in slot[place + 1 :]:
                assert all(a in before[b] for a in users[one] for b in users[other]) or all(
                    b in before[a] for a in users[one] for b in users[other]
                )


def _assert_kept(net: NamedNet, shared: SharedNet) -> None:
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    assert not net.externals & set(shared.renames)


@given(st.integers(0, 10**6))
def test_blobs_share_only_where_no_execution_could_touch_both_at_once(seed: int) -> None:
    net, rng = random_net(seed), random.Random(seed)
    ops = [op for op in range(len(net.ops)) if rng.random() < 0.8]
    shareable = [blob for blob in net.blobs if rng.random() < 0.8]
    shared = share_branch_safe(net, net.blobs[:2], ops, shareable, "s/")
    _assert_safe(net, shared)
    _assert_kept(net, shared)
    assert set(shared.renames) <= set(shareable)
    assert all(len(slot) > 1 for slot in _slots(shared))
    for _ in range(3):
        assert same_values(net, shared.net, random_execution(net, rng))


def test_only_the_first_of_two_branches_takes_a_free_blob() -> None:
    ops = [
        _op("FC", "data", "a"),
        _op("FC", "a", "b"),
        *(_op("FC", "b", "left1"), _op("FC", "left1", "left2"), _op("FC", "left2", "left3")),
        *(_op("FC", "b", "right1"), _op("FC", "right1", "right2"), _op("FC", "right2", "right3")),
        _op("Sum", "left3 right3", "joined"),
    ]
    net = NamedNet(ops=tuple(ops), external_inputs=("data",), external_outputs=("joined",))
    shared = share_inference(net, ["data"], SCOPE)
    assert _slots(shared) == [["a", "left1", "left3"], ["right1", "right3"]]
    assert set(shared.renames.values()) == {"name_x/__m0_shared", "name_x/__m1_shared"}
    assert len(shared.net.blobs) == len(net.blobs) - 3


def test_names_that_are_taken_already_are_passed_over() -> None:
    net = NamedNet(
        ops=(_op("FC", "x", "__m0_shared"), _op("FC", "__m0_shared", "b"), _op("FC", "b", "c"), _op("FC", "c", "y")),
        external_inputs=("x",),
        external_outputs=("y",),
    )
    assert set(share_inference(net, ["x"]).renames.values()) == {"__m1_shared"}


def test_with_sizes_the_free_slot_that_fits_best_is_taken() -> None:
    ops = (_op("A", "x", "large small"), _op("B", "large small", "m"), _op("C", "m", "n o"), _op("D", "n o", "y"))
    sizes = {"large": 100, "small": 10, "m": 5, "n": 8, "o": 50, "x": 1, "y": 1}
    net = NamedNet(ops=ops, external_inputs=("x",), external_outputs=("y",), sizes=sizes)
    shared = share_inference(net, ["x"])
    assert _slots(shared) == [["large", "o"], ["small", "n"]]
    assert shared.statistics.bytes_before - shared.statistics.bytes_after == 58


def test_gradients_handed_from_layer_to_layer_share_and_those_of_parameters_do_not() -> None:
    net = training_net(5)
    param_grads = {blob for blob in net.external_outputs if blob.endswith("_grad")}
    shared = share_gradients(net, ["name_x/loss"], param_grads, "name_x")
    _assert_safe(net, shared)
    _assert_kept(net, shared)
    assert len(shared.net.blobs) < len(net.blobs)
    assert all(blob.endswith("_grad") for blob in shared.renames)
    assert not param_grads & set(shared.renames)
    assert set(shared.renames.values()) == {"name_x/__m0_shared", "name_x/__m1_shared"}


@pytest.mark.parametrize("n_layers", [1, 2, 3, 8])
def test_sharing_activations_is_never_worse_and_excludes_the_last_ones(n_layers: int) -> None:
    net = training_net(n_layers)
    param_grads = {blob for blob in net.external_outputs if blob.endswith("_grad")}
    alone = share_gradients(net, ["name_x/loss"], param_grads, SCOPE)
    together = share_gradients(net, ["name_x/loss"], param_grads, SCOPE, share_activations=True)
    _assert_safe(net, together)
    _assert_kept(net, together)
    assert len(together.net.blobs) <= len(alone.net.blobs)
    assert f"name_x/fc{n_layers}" in together.net.blobs
    assert f"name_x/fc{n_layers}" not in together.renames


@given(st.integers(1, 8), st.integers(0, 10**6))
def test_sharing_activations_too_never_takes_more_bytes(n_layers: int, seed: int) -> None:
    rng, net = random.Random(seed), training_net(n_layers)
    net = replace(net, sizes={blob: rng.choice((1, 5, 100)) for blob in net.blobs})
    alone = share_gradients(net, ["name_x/loss"], (), SCOPE)
    together = share_gradients(net, ["name_x/loss"], (), SCOPE, share_activations=True)
    assert together.statistics.bytes_after <= alone.statistics.bytes_after <= alone.statistics.bytes_before


def test_a_large_activation_is_worth_sharing_unless_it_is_one_of_the_last_two() -> None:
    net = training_net(6)
    for large, helps in (("fc3", True), ("fc4", True), ("fc5", False), ("fc6", False)):
        sizes = dict.fromkeys(net.blobs, 1) | {f"{SCOPE}{large}": 100, f"{SCOPE}fc1_grad": 100}
        sized = replace(net, sizes=sizes)
        alone = share_gradients(sized, ["name_x/loss"], (), SCOPE)
        together = share_gradients(sized, ["name_x/loss"], (), SCOPE, share_activations=True)
        assert (together.statistics.bytes_after < alone.statistics.bytes_after - 50) == helps
        assert (f"{SCOPE}{large}" in together.renames) == helps


def test_a_scope_ends_at_a_slash_and_split_gradients_belong_to_it() -> None:
    net = training_net(4)
    assert share_gradients(net, ["name_x/loss"], (), "name").renames == {}
    assert share_gradients(net, ["name_x/loss"], (), "").renames
    split = replace(
        net,
        ops=tuple(
            replace(
                op,
                inputs=tuple(blob.replace("name_x/fc2_grad", "_name_x/fc2_grad_autosplit_0") for blob in op.inputs),
                outputs=tuple(blob.replace("name_x/fc2_grad", "_name_x/fc2_grad_autosplit_0") for blob in op.outputs),
            )
            for op in net.ops
        ),
    )
    assert "_name_x/fc2_grad_autosplit_0" in share_gradients(split, ["name_x/loss"], (), SCOPE).renames


def test_blobs_that_must_not_share_do_not() -> None:
    net = training_net(6)
    kept = ["name_x/fc3_grad", "name_x/fc2"]
    shared = share_gradients(net, ["name_x/loss"], (), SCOPE, never_share=kept, share_activations=True)
    assert not set(kept) & set(shared.renames)
    assert shared.renames


def test_no_blob_is_shared_between_devices() -> None:
    net = training_net(8, scope="", first_on_gpu=4)
    shared = share_gradients(net, ["loss"], (), "", share_activations=True)
    assert len(shared.net.blobs) < len(net.blobs)
    _assert_safe(net, shared)
    sides: dict[str | None, set[str]] = {}
    for op in shared.net.ops:
        if not op.kind.startswith("CopyGPUToCPU"):
            sides.setdefault(op.device, set()).update((*op.inputs, *op.outputs))
    assert not sides["cpu"] & sides["gpu"]


def _daggy() -> NamedNet:
    """Two branches that join, and a second end."""
    layers = [("data", "fc1"), ("fc1", "fc2"), ("fc2", "fc3"), ("fc3", "fc4"), ("fc4", "fc5")]
    layers += [("fc2", "fc3b"), ("fc3b", "fc4b"), ("fc4b", "fc5b")]
    ops = [_op("FC", f"{x} {y}_w {y}_b", y) for x, y in layers]
    ops += [_op("Sum", "fc5 fc5b", "fc5sum"), _op("Relu", "fc5sum", "relu1"), _op("Softmax", "relu1", "pred1")]
    ops += [_op("LabelCrossEntropy", "pred1 label", "xent1"), _op("AveragedLoss", "xent1", "loss1")]
    ops += [_op("FC", "fc5 fc6_w fc6_b", "fc6"), _op("Relu", "fc6", "relu2"), _op("Softmax", "relu2", "pred2")]
    ops += [_op("LabelCrossEntropy", "pred2 label", "xent2"), _op("AveragedLoss", "xent2", "loss2")]
    parameters = [f"{y}_{part}" for _, y in [*layers, ("fc5", "fc6")] for part in "wb"]
    return NamedNet(ops=tuple(ops), external_inputs=("data", "label", *parameters), external_outputs=("loss1", "loss2"))


@pytest.mark.parametrize("parameter", ["fc1_w", "fc5_w", "fc6_b"])
def test_naming_a_parameter_as_a_head_too_changes_nothing(parameter: str) -> None:
    net = _daggy()
    plain = share_inference(net, ["data"], SCOPE)
    _assert_safe(net, plain)
    _assert_kept(net, plain)
    assert len(plain.net.blobs) < len(net.blobs)
    assert share_inference(net, [parameter, "data"], SCOPE).renames == plain.renames
    assert share_inference(net, ["data", parameter], SCOPE).renames == plain.renames


def test_an_in_place_op_may_be_the_root() -> None:
    ops = (_op("F", "A", "A"), _op("Sum", "A A", "B"), _op("Relu", "B", "C"), _op("Relu", "C", "D"))
    net = NamedNet(ops=(*ops, _op("Sum", "D D", "E")), external_inputs=("A",))
    assert _slots(share_inference(net, ["A"])) == [["B", "D"], ["C", "E"]]


def test_readers_of_an_op_without_inputs_share() -> None:
    ops = (_op("Fill", "", "a"), _op("FC", "data a", "b"), _op("FC", "b", "c"), _op("FC", "c", "d"))
    net = NamedNet(ops=ops, external_inputs=("data",), external_outputs=("d",))
    assert _slots(share_inference(net, ["data"])) == [["a", "c"]]


def test_inference_refuses_gradient_ops_and_unwritten_blobs() -> None:
    with pytest.raises(UnsupportedError, match=r"op 9 \(AveragedLossGradient\) is a gradient op"):
        share_inference(training_net(5), ["name_x/data"], SCOPE)
    net = NamedNet(ops=(_op("FC", "data", "a"), _op("FC", "a ghost", "b")), external_inputs=("data",))
    with pytest.raises(GraphError, match=r"op 1 \(FC\) reads 'ghost', which no op before it writes"):
        share_inference(net, ["data"])


@given(st.integers(0, 10**6))
def test_inference_in_one_pass_computes_the_same_in_order(seed: int) -> None:
    net = random_net(seed)
    never_share = net.blobs[::4]
    shared = share_inference_fast(net, never_share)
    _assert_kept(net, shared)
    assert same_values(net, shared.net, range(len(net.ops)))
    assert not set(never_share) & set(shared.renames)
    assert all(len({net.devices[blob] for blob in slot}) == 1 for slot in _slots(shared))
    assert all(len(set(op.outputs)) == len(op.outputs) for op in shared.net.ops)
    assert share_inference_fast(shared.net, never_share).net == shared.net or not shared.renames


def test_an_op_fed_the_same_input_twice_never_gets_two_identical_outputs() -> None:
    sums = [_op("Sum", f"{x} {y}", f"{x}{y}") for x in ("p", "q") for y in ("p", "q")]
    ops = (_op("FC", "d0", "p"), _op("FC", "d1", "q"), *sums, _op("Concat", "pp pq qp qq", "c info"))
    net = NamedNet(ops=(*ops, _op("Relu", "c", "merged")), external_inputs=("d0", "d1"), external_outputs=("merged",))
    for shared in (share_inference_fast(net), share_inference(net, ["d0", "d1"])):
        assert all(len(set(op.outputs)) == len(op.outputs) for op in shared.net.ops)
        assert same_values(net, shared.net, range(len(net.ops)))
        assert len(shared.net.blobs) < len(net.blobs)


def _bytes(net: NamedNet, renames: Mapping[str, str]) -> int:
    return sharing_statistics(net, renames).bytes_after


def _is_right(net: NamedNet, renames: Mapping[str, str], *, in_parallel: bool) -> bool:
    """Return whether the renames are valid: one device, no outer blobs, equal in-place pairs and values, no overlap."""
    renamed = rename_blobs(net, renames)
    slots = _slots(SharedNet(net=renamed, renames=renames, statistics=sharing_statistics(net, renames)))
    shared = [slot for slot in slots if len(slot) > 1]
    made: set[str] = set()
    from_outside = set(net.externals)
    for op in net.ops:
        from_outside.update(set(op.inputs) - made)
        made.update(op.outputs)
    if from_outside & {blob for slot in shared for blob in slot}:
        return False
    if any(len({net.devices[blob] for blob in slot}) > 1 for slot in shared):
        return False
    in_place = [
        [[(a, b) for a, x in enumerate(op.inputs) for b, y in enumerate(op.outputs) if x == y] for op in each.ops]
        for each in (net, renamed)
    ]
    if in_place[0] != in_place[1] or any(len(set(op.outputs)) < len(op.outputs) for op in renamed.ops):
        return False
    before, users = waits(net), touches(net)

    def follows(one: str, other: str) -> bool:
        return all(a in before[b] for a in users[one] for b in users[other])

    pairs = ((a, b) for slot in shared for a, b in combinations(slot, 2)) if in_parallel else ()
    return same_values(net, renamed, range(len(net.ops))) and all(follows(a, b) or follows(b, a) for a, b in pairs)


@given(st.integers(0, 10**6))
def test_never_more_bytes_than_by_memongers_own_rules_where_those_are_right(seed: int) -> None:
    """For any sizes, blobs that share in memonger's result share here, too."""
    net, rng = random_net(seed), random.Random(seed)
    ops, heads = range(len(net.ops)), net.blobs[:2]
    shareable = set(net.blobs) - net.externals
    tokens, one_pass = token_renames(net, heads, ops, shareable), one_pass_renames(net, net.externals)
    branch_safe, fast = share_branch_safe(net, heads, ops, shareable, "s/"), share_inference_fast(net)
    found = [(branch_safe, tokens, True), (fast, one_pass, False)]
    for shared, renames, in_parallel in found:
        if renames and _is_right(net, renames, in_parallel=in_parallel):
            for _ in range(1 if net.sizes else 4):
                sized = net if net.sizes else replace(net, sizes={blob: rng.choice((1, 8, 50)) for blob in net.blobs})
                assert _bytes(sized, shared.renames) <= _bytes(sized, renames)
