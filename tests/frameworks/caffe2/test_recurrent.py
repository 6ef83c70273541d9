"""Step nets of recurrent ops, as messages or text, are callees, are renamed, and run step by step."""

from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.caffe2 import Argument, Caffe2Model, NetDef, OperatorDef, memonger, plan, run_once, write_net
from lowtide.core.errors import LowtideError
from lowtide.frameworks.caffe2.nets.load import read_net

STEPS, BATCH, WIDTH = 3, 2, 4
SHAPES = {
    "seq": [STEPS, BATCH, WIDTH],
    "h0": [1, BATCH, WIDTH],
    **{name: [WIDTH, WIDTH] for name in "wr"},
    **{name: [WIDTH] for name in "bc"},
}


def _step_net() -> NetDef:
    axis = Argument(name="axis", i=2)
    return NetDef(
        name="step",
        op=[
            OperatorDef(type="FC", input=["x_t", "w", "b"], output=["a"], arg=[axis]),
            OperatorDef(type="FC", input=["h_prev", "r", "c"], output=["g"], arg=[axis]),
            OperatorDef(type="Sum", input=["a", "g"], output=["s"]),
            OperatorDef(type="Tanh", input=["s"], output=["h"]),
        ],
        external_input=["x_t", "h_prev", "w", "b", "r", "c"],
        external_output=["h"],
    )


def _net(*, as_text: bool) -> NetDef:
    step = Argument(name="step_net")
    if as_text:
        step.s = b"# a step\n" + write_net(_step_net(), "step.pbtxt")
    else:
        step.n = _step_net()
    settings = [
        step,
        Argument(name="link_internal", strings=[b"x_t", b"h_prev", b"h"]),
        Argument(name="link_external", strings=[b"seq2", b"states", b"states"]),
        Argument(name="link_offset", ints=[0, 0, 1]),
        Argument(name="recurrent_states", strings=[b"states"]),
        Argument(name="initial_recurrent_state_ids", ints=[1]),
        Argument(name="alias_src", strings=[b"states", b"states"]),
        Argument(name="alias_dst", strings=[b"all", b"last"]),
        Argument(name="alias_offset", ints=[1, -1]),
        Argument(name="timestep", s=b"timestep"),
    ]
    recurrent = OperatorDef(
        type="RecurrentNetwork", input=["seq2", "h0", "w", "b", "r", "c"], output=["all", "last"], arg=settings
    )
    ops = [
        OperatorDef(type="Copy", input=["seq"], output=["seq1"]),
        OperatorDef(type="Relu", input=["seq1"], output=["seq2"]),
        recurrent,
        OperatorDef(type="Copy", input=["all"], output=["more"]),
        OperatorDef(type="SumElements", input=["more"], output=["y"]),
    ]
    return NetDef(name="rnn", op=ops, external_input=list(SHAPES), external_output=["y", "last"])


def _inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def _by_hand(inputs: dict[str, np.ndarray]) -> np.ndarray:
    h = inputs["h0"][0]
    for x in np.maximum(inputs["seq"], 0):
        h = np.tanh(x @ inputs["w"].T + inputs["b"] + (h @ inputs["r"].T + inputs["c"]))
    return h[None]


both_formats = pytest.mark.parametrize("as_text", [False, True], ids=["message", "text"])


@both_formats
def test_steps_compute_the_same_as_a_loop(as_text: bool) -> None:
    inputs = _inputs()
    found = run_once(_net(as_text=as_text), inputs, ["last", "y"]).results
    np.testing.assert_allclose(found["last"], _by_hand(inputs), rtol=1e-5)


@both_formats
def test_a_step_net_is_a_callee_that_borrows_from_the_net_around_it(as_text: bool) -> None:
    graph = Caffe2Model(_net(as_text=as_text), shapes=SHAPES, parameters=["w", "b", "r", "c"]).graph
    (inner,) = graph.subgraphs.values()
    assert inner.op_kinds == ("FC", "FC", "Sum", "Tanh")
    row = 4 * BATCH * WIDTH
    assert {name: inner.sizes[inner.buffer_names.index(name)] for name in ("a", "g", "s", "h")} == dict.fromkeys(
        ("a", "g", "s", "h"), row
    )
    baseline = lowtide.minimize(graph, allow=()).baseline_peak_bytes["device"]
    outer = 4 * BATCH * WIDTH * (STEPS + 1 + STEPS + STEPS + 1)  # seq and h0, seq2, all and last
    assert baseline == outer + 3 * row


@both_formats
def test_renames_reach_into_step_nets_and_are_recorded(as_text: bool) -> None:
    before = _net(as_text=as_text)
    before.op.insert(4, OperatorDef(type="Copy", input=["more"], output=["even more"]))
    before.op[5].input = ["even more"]
    found = memonger.optimize_interference(before, ["h0", "w", "b", "r", "c", "seq", "y", "last"])
    recurrent = next(op for op in found.net.op if op.type == "RecurrentNetwork")
    renamed = {argument.name: argument.s.decode() for argument in recurrent.arg if argument.name.endswith(".rename")}
    assert renamed
    assert renamed == {f"{blob}.rename": new for blob, new in found.blob_assignments.items() if blob == "seq2"}
    assert found.blob_assignments["seq2"].encode() in recurrent.arg[2].strings
    results = run_once(found.net, _inputs(), ["y", "last"]).results
    expected = run_once(before, _inputs(), ["y", "last"]).results
    assert all(results[name].tobytes() == expected[name].tobytes() for name in expected)
    memonger.apply_assignments(before, {"w": "shared"})
    assert "shared" in _step_of(before).external_input
    assert _step_of(before).op[0].input[1] == "shared"
    assert before.op[2].arg[-1].name == "w.rename"


def _step_of(net: NetDef) -> NetDef:
    argument = net.op[2].arg[0]
    return read_net(argument.s, "step") if argument.s else argument.n


def test_outputs_of_a_recurrent_op_never_share() -> None:
    """In Caffe2, all of them are rows of the states, so that reuse of one overwrites others."""
    net = _net(as_text=False)
    net.op.insert(3, OperatorDef(type="Tanh", input=["last"], output=["t"]))
    net.op.insert(4, OperatorDef(type="Exp", input=["t"], output=["u"]))
    net.op.insert(5, OperatorDef(type="Sqr", input=["u"], output=["z"]))
    net.external_output[:] = ["y", "z"]
    model = Caffe2Model(net, shapes=SHAPES)
    for made in (
        memonger.optimize_inference_fast(net, []),
        memonger.optimize_inference_for_dag(net, ["seq"]),
        memonger.optimize_interference(net, []).net,
        model.apply(lowtide.minimize(model.graph).plan),
        plan(net, SHAPES).net,
    ):
        writers = [op.type for op in made.op for blob in op.output if blob in ("all", "last") and op.type != "Free"]
        assert writers == ["RecurrentNetwork"] * 2


@both_formats
def test_a_recurrent_net_is_planned_applied_and_measured(as_text: bool) -> None:
    model = Caffe2Model(_net(as_text=as_text), shapes=SHAPES, parameters=["w", "b", "r", "c"])
    measured = model.measure(lowtide.minimize(model.graph).plan)
    assert measured.outputs_equal


def test_a_step_net_that_is_no_net_is_one_line() -> None:
    def broken(text: bytes) -> Any:
        net = _net(as_text=True)
        net.op[2].arg[0].s = text
        return net

    for text in (b"op {", b"op { type: }", b"\xff\xfe", b"op { input: 'a' }"):
        with pytest.raises(LowtideError) as refused:
            Caffe2Model(broken(text), shapes=SHAPES)
        assert "step_net" in str(refused.value)
        assert "\n" not in str(refused.value)
    net = _net(as_text=False)
    net.op[2].arg[5].ints[0] = 17
    with pytest.raises(LowtideError, match="begins with no input"):
        Caffe2Model(net, shapes=SHAPES)
