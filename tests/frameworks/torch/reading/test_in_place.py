"""In-place forms: bits as out of place, and one computation per op."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

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


class InPlaceToo(TorchDispatchMode):
    """Runs each element-wise op also in place of its operands, as plans may, and compares the bits."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0
        self.differing: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) or result.is_complex() or torch.Tag.pointwise not in func.tags:
            return result
        variant, keyword = in_place._variant_of(func) or (None, None)
        for position, operand in enumerate(args if variant is not None else ()):
            if not isinstance(operand, torch.Tensor) or (keyword is None and position > 0):
                continue
            copy = operand.clone()
            forms = {(each.dtype, each.shape, each.stride()) for each in (operand, copy, result)}
            if len(forms) > 1 or any(operand is other for other in args[:position]):
                continue
            taken = [copy if other is operand else other for other in args]
            found = variant(*taken, **(kwargs or {}), **({} if keyword is None else {keyword: copy}))
            self.compared += 1
            if not torch.equal(found.nan_to_num(), result.nan_to_num()):
                self.differing.append(f"{variant} of {result.dtype}")
        return result


@pytest.mark.filterwarnings("ignore")  # operators warn about some of their samples
@pytest.mark.usefixtures("quick_samples")
@pytest.mark.parametrize("dtype", [torch.bfloat16], ids=str)
def test_an_element_wise_result_in_place_is_bit_equal(dtype: torch.dtype) -> None:
    mode = InPlaceToo()
    for op in op_db:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        with_gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=with_gradients), 1):
            try:
                with mode:
                    result = op(sample.input, *sample.args, **sample.kwargs)
                    if isinstance(result, torch.Tensor) and result.requires_grad:
                        result.backward(torch.randn_like(result))
            except (RuntimeError, AssertionError):  # no gradient, a sample that is refused, or an op of GPUs
                continue
    assert mode.compared > 150
    assert not mode.differing


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
