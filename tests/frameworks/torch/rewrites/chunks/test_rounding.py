"""Chunks equal up to rounding are used where allowed and useful, and reported."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import UsageError
from lowtide.engine.plan import Plan
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.frameworks.torch.rewrites.chunks import trial
from tests.frameworks.torch.reading.measured_scratch import one_thread

CLASSES, WIDTH, TOKENS = 2053, 64, 1024
EXACT = ("reorder", "share")
ROUNDED = (*EXACT, "rounding")


class Head(nn.Module):
    """A token embedding with an output layer of the same weights, in half precision."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, WIDTH, dtype=dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.tanh(self.tokens(tokens)) @ self.tokens.weight.T
        return functional.cross_entropy(logits, tokens.roll(1))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch.compiler.reset()
    forget_programs()
    with one_thread():
        yield


def step_of(model: nn.Module) -> tuple[Any, tuple[torch.Tensor]]:
    """Return a training step and its batch."""
    step = lt.TrainingStep(model, None, torch.optim.SGD(model.parameters(), lr=10.0))
    return step, (torch.randint(0, CLASSES, (TOKENS,)),)


@pytest.fixture(scope="module", name="program")
def program_fixture() -> lt.TorchModel:
    """A training step in half precision."""
    torch.manual_seed(0)
    with one_thread():
        return lt.TorchModel(step_of(Head()))


@pytest.fixture(scope="module", name="rounded")
def rounded_fixture(program: lt.TorchModel) -> Result:
    """Its plan with rounding allowed."""
    with one_thread():
        return lowtide.minimize(program, allow=ROUNDED, effort="fast")


def test_a_half_precision_step_needs_less_if_rounding_is_allowed_and_reports_it(
    program: lt.TorchModel, rounded: Result
) -> None:
    """In half precision every partial sum is rounded, so no chunks of tokens are bit-equal."""
    exact = lowtide.minimize(program, allow=EXACT, effort="fast")
    assert not exact.to_rounding
    assert rounded.to_rounding
    assert rounded.peak_bytes["cpu"] < exact.peak_bytes["cpu"] / 2
    measured = program.measure(rounded.plan, timed_calls=1)
    assert measured.after_bytes <= rounded.peak_bytes["cpu"] + 256
    assert not measured.outputs_equal
    assert measured.outputs_near
    assert measured.largest_difference is not None
    assert 0 < measured.largest_difference < 0.1


def test_products_not_in_chunks_are_reported_with_advice(program: lt.TorchModel) -> None:
    found = lowtide.minimize(program, effort="fast")
    assert any(sentence.endswith("allow 'rounding' to use chunks") for sentence in found.left_whole)


def test_a_missed_budget_is_reported_with_advice() -> None:
    step, batch = step_of(Head())
    with pytest.warns(UserWarning, match=r"misses its budget: .* is not in chunks: .* allow 'rounding'"):
        lt.training_step(step.model, None, step.optimizer, batch, budget="10%")


def test_equal_bits_are_preferred_if_they_need_as_little() -> None:
    program = lt.TorchModel(step_of(Head(torch.float64)))
    found = lowtide.minimize(program, allow=ROUNDED, effort="fast")
    assert program.measure(found.plan, timed_calls=1).outputs_equal != found.to_rounding


def test_a_plan_up_to_rounding_is_loaded_as_one(program: lt.TorchModel, rounded: Result, tmp_path: Path) -> None:
    lowtide.save_plan(rounded.plan, tmp_path / "step.plan.json", program)
    opened_again = lt.TorchModel(step_of(Head()))
    loaded = lowtide.load_plan(tmp_path / "step.plan.json", opened_again)
    assert not opened_again.planned_form(loaded).is_exact
    assert opened_again.planned_form(Plan.baseline(opened_again.graph)).is_exact


def test_the_backend_uses_such_chunks_for_a_budget_with_equal_loss_up_to_rounding() -> None:
    (_, batch), peaks, losses = step_of(Head()), list[int](), list[float]()
    for allow in (EXACT, ROUNDED):
        torch.manual_seed(0)
        model = Head()
        torch.compiler.reset()
        forget_programs()
        options = {"compiler": "eager", "allow": [*allow, "recompute"], "budget": "12%"}
        compiled = torch.compile(model, backend="lowtide", options=options)

        def call(model: Any = model, compiled: Any = compiled) -> float:
            model.zero_grad(set_to_none=True)
            loss = compiled(*batch)
            loss.backward()
            return float(loss)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # equal bits miss the budget
            call()
        peak, loss = peak_of_call(call, torch.device("cpu"))
        peaks.append(peak)
        losses.append(loss)
        assert planned_programs()[-1].result.to_rounding == (allow is ROUNDED)
    assert peaks[1] < peaks[0]
    assert losses[1] == pytest.approx(losses[0], rel=2**-8)


def test_rounding_is_refused_for_other_frameworks() -> None:
    builder = lowtide.GraphBuilder("one op")
    builder.add_op("op", "op", reads=[builder.add_buffer("x", 1, lowtide.Lifetime.INPUT)], writes=[])
    with pytest.raises(UsageError, match=r"'rounding' would be ignored: .* it is for programs of PyTorch"):
        lowtide.minimize(builder.build(), allow=ROUNDED)


def test_other_devices_have_chunks_only_if_rounding_is_allowed() -> None:
    """On the device "meta", which cannot run a trial."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("meta"):
        program = lt.TorchModel(step_of(Head()))
    assert program.in_chunks is None
    assert any("is known to give equal bits on device 'meta'" in sentence for sentence in program.left_whole())
    found = program.form("in chunks", exact=False)
    assert found is not None
    assert "chunks" in found.graph.name


def test_without_memory_for_a_trial_there_are_no_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, positive: bool) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trial, "_random", fails)
    assert lt.TorchModel(step_of(Head(torch.float32))).in_finer_chunks is None
