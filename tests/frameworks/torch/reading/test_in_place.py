"""In-place forms: softmax and its gradient, and one computation per op."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lowtide
import lowtide.torch as lt
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.reading import in_place
from lowtide.frameworks.torch.reading.lowering import InPlaceForm, Lowered, LoweredOp

ATEN = torch.ops.aten
SIZES = st.lists(st.sampled_from([1, 2, 3, 7, 16, 33]), min_size=0, max_size=3)
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (ATEN._softmax, ATEN._softmax_backward_data),
        (ATEN._log_softmax, ATEN._log_softmax_backward_data),
    ],
)
@given(
    outer=SIZES, row=st.sampled_from([1, 2, 15, 16, 17, 64, 257, 5003]), dtype=st.sampled_from(TYPES), data=st.data()
)
def test_a_result_in_place_of_any_operand_is_bit_equal(
    forward: torch._ops.OpOverloadPacket,
    backward: torch._ops.OpOverloadPacket,
    outer: list[int],
    row: int,
    dtype: torch.dtype,
    data: st.DataObject,
) -> None:
    shape = [*outer, row]
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    generator = torch.Generator().manual_seed(0)
    x, gradient = (5 * torch.randn(2, *shape, generator=generator).to(dtype)).unbind()
    value = forward.default(x, dim, False)
    assert torch.equal(forward.out(taken := x.clone(), dim, False, out=taken), value)
    wanted = backward.default(gradient, value, dim, dtype)
    name = next(argument.name for argument in backward.out._schema.arguments if argument.is_out)
    for operand in range(2):
        given_ = [gradient.clone(), value.clone()]
        assert torch.equal(backward.out(*given_, dim, dtype, **{name: given_[operand]}), wanted)


def test_the_forms_of_an_op_are_computed_once_per_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program with an in-place activation is also lowered to compare peaks, which needs no in-place forms."""
    computed: list[torch.fx.Node] = []
    find_forms = in_place._find_forms

    def record(op: LoweredOp, lowered: Lowered) -> Iterator[InPlaceForm]:
        computed.append(op.node)
        return find_forms(op, lowered)

    monkeypatch.setattr(in_place, "_find_forms", record)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lt.training_step(model, lambda model, x: model(x).square().mean(), optimizer, torch.randn(4, 8))
    assert computed
    assert len(computed) == len(set(computed))
    assert len({node.graph for node in computed}) == 1


class Head(torch.nn.Module):
    """A projection to a large vocabulary and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(32, 5000)

    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.out(x), wanted)


def test_one_tensor_of_logits_is_enough_for_a_loss_and_its_gradient() -> None:
    """The unmodified program needs two, because the gradient of the loss is as large. In chunks, one is enough."""
    model = Head()
    step = lt.TrainingStep(model, lambda model, *batch: model(*batch), torch.optim.SGD(model.parameters(), lr=0.1))
    opened = lowtide.open_model((step, (torch.randn(256, 32), torch.randint(0, 5000, (256,)))))
    unmodified = lowtide.minimize(opened.graph)
    result = plan_best_form(opened, PlanSettings())
    logits = 256 * 5000 * 4
    assert result.baseline_peak_bytes["cpu"] > 2.9 * logits
    assert unmodified.peak_bytes["cpu"] < 2.1 * logits
    assert result.peak_bytes["cpu"] < 1.2 * logits
    measured = opened.measure(result.plan, timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes <= 1.02 * result.peak_bytes["cpu"]
