"""Blobs in the step nets of recurrent ops are renamed, and the op records the renames."""

from dataclasses import replace

import pytest

from lowtide.core.errors import VerificationError
from lowtide.share import (
    NamedNet,
    NamedOp,
    rename_blobs,
    share_by_interference,
    share_gradients,
    share_inference_fast,
    verify_equality,
)


def _op(kind: str, inputs: str, outputs: str, **fields: object) -> NamedOp:
    return replace(NamedOp(kind=kind, inputs=tuple(inputs.split()), outputs=tuple(outputs.split())), **fields)


def _recurrent_net() -> NamedNet:
    """Return a recurrent op whose forward step reads the outer blobs `bias` and `x`, and its own `t`."""
    forward = NamedNet(
        ops=(_op("FC", "x t", "gates"), _op("Add", "gates bias", "t")),
        external_inputs=("x", "bias", "t"),
        external_outputs=("t",),
    )
    backward = NamedNet(
        ops=(_op("FCGradient", "x hidden_grad", "x_grad"),),
        external_inputs=("x", "hidden_grad"),
        external_outputs=("x_grad",),
    )
    return NamedNet(
        ops=(
            _op("FC", "data", "early"),
            _op("Relu", "early", "x"),
            _op("Fill", "x", "bias"),
            _op("RecurrentNetwork", "x", "hidden", step_nets=(forward,)),
            _op("Flatten", "hidden", "flat"),
            _op("Loss", "flat", "loss"),
            _op("LossGradient", "loss", "flat_grad", is_gradient=True),
            _op("FlattenGradient", "flat_grad", "hidden_grad", is_gradient=True),
            _op("RecurrentNetworkGradient", "x", "early_grad", is_gradient=True, step_nets=(forward, backward)),
            _op("FCGradient", "early_grad", "data_grad", is_gradient=True),
        ),
        external_inputs=("data",),
        external_outputs=("loss",),
    )


def test_a_recurrent_op_touches_the_outer_blobs_of_its_step_nets() -> None:
    net = _recurrent_net()
    assert net.reads[3] == ("x", "bias")
    assert net.writes[3] == ("hidden",)
    assert net.reads[8] == ("x", "bias", "hidden_grad")
    assert net.writes[8] == ("early_grad",)


def test_step_nets_are_renamed_inside_with_their_external_inputs() -> None:
    renamed = rename_blobs(_recurrent_net(), {"x": "s0", "hidden_grad": "s1", "early": "s0"})
    forward, backward = renamed.ops[8].step_nets
    assert forward.external_inputs == ("s0", "bias", "t")
    assert forward.ops[0].inputs == ("s0", "t")
    assert backward.external_inputs == ("s0", "s1")
    assert backward.ops[0].inputs == ("s0", "s1")
    assert renamed.ops[8].renames == (("x", "s0"),)
    assert renamed.ops[3].renames == (("x", "s0"),)
    assert renamed.ops[0].renames == ()


@pytest.mark.parametrize("algorithm", ["greedy", "optimal"])
def test_interference_keeps_blobs_read_only_in_a_step_net_alive(algorithm: str) -> None:
    net = _recurrent_net()
    found = share_by_interference(net, algorithm=algorithm)
    ends = {blob.name: blob.used for slot in found.slots for blob in slot}
    assert ends["bias"] == 8
    assert ends["x"] == 8
    assert found.shared.renames


def test_gradients_around_a_recurrent_op_share() -> None:
    net = _recurrent_net()
    shared = share_gradients(net, ["loss"], (), "", share_activations=True)
    assert shared.renames
    recurrent = shared.net.ops[8]
    for blob, name in recurrent.renames:
        assert shared.renames[blob] == name
    assert set(shared.renames) >= {"flat_grad", "early_grad"}


def test_one_pass_sharing_keeps_blobs_read_only_in_a_step_net_alive() -> None:
    shared = share_inference_fast(_recurrent_net())
    assert {shared.renames.get("bias"), shared.renames.get("x")}.isdisjoint(
        shared.renames.get(blob, blob) for blob in ("hidden", "flat", "flat_grad", "hidden_grad")
    )


def test_a_rename_that_merges_two_values_inside_a_step_net_only_is_found() -> None:
    net = _recurrent_net()
    inner = NamedNet(
        ops=(_op("A", "x", "gates"), _op("B", "x", "other"), _op("C", "gates other", "t")), external_inputs=("x",)
    )
    before = replace(net, ops=(*net.ops[:3], replace(net.ops[3], step_nets=(inner,))))
    merged = rename_blobs(inner, {"other": "gates"})
    after = replace(before, ops=(*net.ops[:3], replace(net.ops[3], step_nets=(merged,))))
    with pytest.raises(VerificationError, match=r"op 3 \(RecurrentNetwork\), step net 0: op 2 \(C\) reads other"):
        verify_equality(before, after)
