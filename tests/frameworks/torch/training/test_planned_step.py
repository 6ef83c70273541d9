"""A planned step does what the loop it replaces does, with clipping, averaging, and calls of several forms."""

import copy
import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import RewriteError, UnsupportedError, UsageError, VerificationError
from lowtide.frameworks.torch.emit.apply import Applied

Digest = Callable[[Any], str]


class Block(nn.Module):
    """A residual block with batch normalization and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.BatchNorm1d(4 * width),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(4 * width, width),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features + self.inner(features)


def make_model() -> nn.Module:
    """Return a small model with fixed random weights, in training mode."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 16), Block(16), nn.Linear(16, 5)).train()


def classify(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy over classes."""
    return nn.functional.cross_entropy(model(inputs), labels)


def batch(seed: int, rows: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of feature rows and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 12, generator=generator), torch.randint(0, 5, (rows,), generator=generator)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of these tests."""
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return all state that training leaves."""
    return [model.state_dict(), optimizer.state_dict(), torch.get_rng_state()]


def test_the_step_is_planned_within_its_budget_and_measured_so(digest: Digest) -> None:
    model = make_model()
    step = lt.training_step(model, classify, adamw(model), batch(0), budget="80%")
    before = digest(everything(model, step.step.optimizer))
    measured = step.measure()
    assert digest(everything(model, step.step.optimizer)) == before
    assert measured.outputs_equal
    predicted = step.result.peak_bytes["cpu"]
    assert predicted <= 0.8 * step.result.baseline_peak_bytes["cpu"]
    assert abs(measured.after_bytes - predicted) <= 0.02 * predicted + 4096


@torch.library.custom_op("lowtide_tests::unlike_under_a_plan", mutates_args=())
def unlike_under_a_plan(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows; under a plan, twice the rows."""
    is_planned = any(frame.f_code is Applied.__call__.__code__ for frame, _ in traceback.walk_stack(None))
    return 2 * rows if is_planned else rows.clone()


unlike_under_a_plan.register_fake(torch.empty_like)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_check_passes_or_refuses_the_plan_and_changes_nothing(accumulate: int, digest: Digest) -> None:
    model = make_model()
    optimizer = adamw(model)
    before = digest(everything(model, optimizer))
    options: Any = {"budget": "80%", "check": True, "accumulate": accumulate}
    lt.training_step(model, classify, optimizer, batch(0), **options)
    assert digest(everything(model, optimizer)) == before

    def loss(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return classify(model, rows, labels) + unlike_under_a_plan(rows).mean()

    with pytest.raises(RewriteError, match="report it"):
        lt.training_step(model, loss, optimizer, batch(0), **options)
    assert digest(everything(model, optimizer)) == before


def test_all_calls_of_an_accumulating_step_are_measured_beside_the_plain_loop(digest: Digest) -> None:
    model = make_model()
    step = lt.training_step(
        model, classify, adamw(model), batch(0, 256), accumulate=3, budget="80%", clip_grad_norm=1.0
    )
    step(*batch(1, 256))  # in the middle of a step
    state = [everything(model, step.step.optimizer), [each.grad for each in model.parameters()]]
    before = digest(state)
    measured = step.measure()
    assert digest(state) == before
    assert measured.outputs_equal
    assert measured.predicted_bytes is not None
    assert measured.times is not None
    assert abs(measured.after_bytes - measured.predicted_bytes) <= 0.02 * measured.predicted_bytes + 4096
    assert measured.after_bytes < (measured.original_bytes or 0)
    assert "predicted peak" in str(measured)
    repeated = lt.measure(step, *batch(0, 256), with_eager=True, timed_calls=2)
    assert digest(state) == before
    assert repeated.eager is not None
    assert repeated.measured_peak_bytes < repeated.eager.measured_peak_bytes
    assert abs((repeated.measured_over_predicted or 0) - 1) <= 0.02
    for _ in range(2):
        step(*batch(2, 256))  # the step goes on


def test_the_first_call_of_an_accumulating_step_is_measured_from_a_plan() -> None:
    model = make_model()
    step = lt.TrainingStep(model, classify, adamw(model), accumulate=2)
    plan = lowtide.plan(step, *batch(0, 256), budget="80%").plan
    measured = lowtide.measure(plan, step, *batch(0, 256))
    assert measured.outputs_equal
    assert measured.after_bytes < measured.before_bytes
    assert step.done == 0


@pytest.mark.parametrize(
    ("options", "clip"),
    [
        ({"clip_grad_norm": 0.1}, lambda p: nn.utils.clip_grad_norm_(p, 0.1)),
        ({"clip_grad_value": 0.01}, lambda p: nn.utils.clip_grad_value_(p, 0.01)),
        ({"before_update": lambda p: p[0].grad.mul_(2)}, lambda p: p[0].grad.mul_(2)),
    ],
)
def test_gradients_are_changed_as_in_the_plain_loop(options: dict[str, Any], clip: Any, digest: Digest) -> None:
    def plain() -> str:
        model = make_model()
        optimizer = adamw(model)
        for seed in range(3):
            optimizer.zero_grad()
            classify(model, *batch(seed)).backward()
            clip(list(model.parameters()))
            optimizer.step()
        return digest(everything(model, optimizer))

    expected = plain()
    model = make_model()
    step = lt.training_step(model, classify, adamw(model), batch(0), **options)
    for seed in range(3):
        step(*batch(seed))
    assert digest(everything(model, step.step.optimizer)) == expected


def classify_in_half_precision(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy with matrix products in bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return classify(model, inputs, labels)


def test_automatic_casts_inside_the_loss_are_part_of_the_graph(digest: Digest) -> None:
    def run(planned: bool) -> str:
        model = make_model()
        step: Any = lt.TrainingStep(model, classify_in_half_precision, adamw(model))
        optimizer = step.optimizer
        if planned:
            step = lt.training_step(model, classify_in_half_precision, optimizer, batch(0))
        losses = [step(*batch(seed)) for seed in range(3)]
        return digest([losses, everything(model, optimizer)])

    assert run(True) == run(False)


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_averaged_model_is_updated_in_the_step(use_buffers: bool, digest: Digest) -> None:
    """The first call copies, later ones average: another branch, and so another graph."""

    def run(planned: bool) -> str:
        model = make_model()
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
        hook = averaged.update_parameters
        if planned:
            step: Any = lt.training_step(model, classify, adamw(model), batch(0), after_update=hook)
            owner = step.step
        else:
            step = owner = lt.TrainingStep(model, classify, adamw(model), after_update=hook)
        for seed in range(4):
            step(*batch(seed))
        return digest([everything(model, owner.optimizer), averaged.state_dict()])

    assert run(True) == run(False)


def test_calls_of_other_forms_are_captured_when_they_come_and_kept(digest: Digest) -> None:
    """A smaller last batch, a frozen mode: equal bits, and nothing is captured twice."""

    def run(planned: bool) -> tuple[str, int]:
        model = make_model()
        step: Any = lt.TrainingStep(model, classify, adamw(model))
        owner = step
        if planned:
            step = lt.training_step(model, classify, owner.optimizer, batch(0))
        programs: set[int] = set()
        captured: list[Any] = []
        for seed, rows, training in [(0, 64, True), (1, 20, True), (2, 64, True), (3, 64, False), (4, 20, True)]:
            model.train(training)
            step(*batch(seed, rows))
            if planned:
                captured.append(step.captured)
                programs.add(id(step.captured))
        return digest(everything(model, owner.optimizer)), len(programs)

    expected, _ = run(False)
    assert run(True) == (expected, 3)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("options", [{}, {"clip_grad_norm": 0.1}])
def test_gradients_of_several_calls_add_up_as_in_the_plain_loop(
    count: int, options: dict[str, Any], digest: Digest
) -> None:
    """Losses, the gradients in between, the update of the last call, and a state dict taken in the middle."""

    def plain() -> list[str]:
        model = make_model()
        optimizer = adamw(model)
        found: list[str] = []
        for seed in range(2 * count):
            loss = classify(model, *batch(seed))
            (loss / count).backward()
            if seed % count == count - 1:
                if options:
                    nn.utils.clip_grad_norm_(model.parameters(), options["clip_grad_norm"])
                optimizer.step()
                optimizer.zero_grad()
            gradients = [parameter.grad for parameter in model.parameters()]
            found.append(digest([loss, gradients, everything(model, optimizer)]))
        return found

    def planned() -> list[str]:
        model = make_model()
        step = lt.training_step(model, classify, adamw(model), batch(0), accumulate=count, **options)
        found: list[str] = []
        for seed in range(2 * count):
            loss = step(*batch(seed))
            gradients = [parameter.grad for parameter in model.parameters()]
            state = [model.state_dict(), step.step.optimizer.state_dict()]
            if seed < count - 1:
                state[1]["state"] = {}  # made before the first update, as it is before that
            found.append(digest([loss, gradients, *state, torch.get_rng_state()]))
        return found

    torch.manual_seed(3)
    expected = plain()
    torch.manual_seed(3)
    assert planned() == expected


def test_a_gradient_cleared_between_the_calls_of_a_step_is_an_error() -> None:
    model = make_model()
    step = lt.training_step(model, classify, adamw(model), batch(0), accumulate=2)
    step(*batch(0))
    model.zero_grad()
    with pytest.raises(UsageError, match="gradient of an earlier call is gone"):
        step(*batch(1))


def test_a_model_that_changed_its_type_is_captured_anew(digest: Digest) -> None:
    def run(planned: bool) -> str:
        model = make_model()
        owner = lt.TrainingStep(model, classify, torch.optim.SGD(model.parameters(), lr=0.1))
        step: Any = lt.training_step(model, classify, owner.optimizer, batch(0)) if planned else owner
        step(*batch(0))
        model.double()
        inputs, labels = batch(1)
        step(inputs.double(), labels)
        return digest(everything(model, owner.optimizer))

    assert run(True) == run(False)


def test_gradients_left_by_the_user_are_cleared_as_the_plain_step_does() -> None:
    model = make_model()
    step = lt.training_step(model, classify, adamw(model), batch(0))
    classify(model, *batch(0)).backward()
    step(*batch(1))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_making_a_step_changes_nothing(digest: Digest) -> None:
    model = make_model()
    optimizer = adamw(model)
    before = copy.deepcopy(everything(model, optimizer))
    lt.training_step(model, classify, optimizer, batch(0))
    assert digest(everything(model, optimizer)) == digest(before)


def test_a_batch_may_be_given_by_name(digest: Digest) -> None:
    def run(by_name: bool) -> str:
        model = make_model()
        given: Any = dict(zip(("inputs", "labels"), batch(0), strict=True)) if by_name else batch(0)
        step = lt.training_step(model, classify, adamw(model), given)
        loss = step(**given) if by_name else step(*given)
        return digest([loss, everything(model, step.step.optimizer)])

    assert run(True) == run(False)


def test_calls_that_cannot_be_are_refused_in_one_line() -> None:
    model = make_model()
    with pytest.raises(UsageError, match="by norm or by value"):
        lt.training_step(model, classify, adamw(model), batch(0), clip_grad_norm=1.0, clip_grad_value=1.0)
    with pytest.raises(UsageError, match="accumulate is 0"):
        lt.training_step(model, classify, adamw(model), batch(0), accumulate=0)
    with pytest.raises(UsageError, match="scalar"):
        lt.training_step(model, lambda m, x, _: m(x), adamw(model), batch(0))
    with pytest.raises(UnsupportedError, match="depends on tensor values"):
        lt.training_step(model, lambda m, x, y: classify(m, x, y) * (1 + int(m(x).sum() > 0)), adamw(model), batch(0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accumulate": 1.5}, "accumulate is 1.5"),
        ({"allow": 5}, "unknown technique 5"),
        ({"grad_scaler": 5}, "grad_scaler is an int"),
        ({"before_update": 5}, "before_update is an int"),
        ({"plan": 5}, "an int is not a path"),
        ({"over_budget": True}, "give that plan"),
        ({"allow": "offload", "budget": "50%", "host_bandwidth": []}, "cannot read"),
    ],
)
def test_an_argument_of_another_kind_is_refused_in_one_line(given: dict[str, Any], said: str) -> None:
    model = make_model()
    with pytest.raises(UsageError, match=said):
        lt.training_step(model, classify, adamw(model), batch(0), **given)


def test_a_batch_of_another_kind_is_refused_in_one_line() -> None:
    model = make_model()
    with pytest.raises(UsageError, match="no batch"):
        lt.training_step(model, classify, adamw(model), 5)  # pyright: ignore[reportArgumentType]


class Returning(nn.Module):
    """A model that returns a dict, with its own loss under a key or without."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.key = key

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.layer(inputs)
        return {"made": made, self.key: made.square().mean()}


def test_the_loss_of_a_model_that_returns_a_dict_is_taken_by_its_name() -> None:
    for key in ("loss", "other"):
        model = Returning(key)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        inputs = torch.randn(2, 4)
        if key == "loss":
            expected = model(inputs)["loss"]
            assert torch.equal(lt.training_step(model, None, optimizer, inputs)(inputs), expected)
        else:
            with pytest.raises(UsageError, match="without a loss"):
                lt.training_step(model, None, optimizer, inputs)


def test_gradients_are_clipped_in_the_models_order_whatever_the_optimizers_groups(digest: Digest) -> None:
    """Norms are added up in the order of `model.parameters()`, as in a loop; here biases come first."""

    def run(planned: bool) -> str:
        model = make_model()
        weights, biases = ([each for each in model.parameters() if (each.dim() > 1) is wide] for wide in (True, False))
        optimizer = torch.optim.SGD([{"params": biases}, {"params": weights}], lr=0.1)
        step = lt.training_step(model, classify, optimizer, batch(0), clip_grad_norm=0.01) if planned else None
        for number in range(3):
            if step is not None:
                step(*batch(number))
                continue
            optimizer.zero_grad()
            classify(model, *batch(number)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        return digest(list(model.parameters()))

    assert run(True) == run(False)


def test_a_parameter_that_was_replaced_is_not_updated_in_the_place_of_the_optimizers() -> None:
    model = make_model()
    step = lt.training_step(model, classify, adamw(model), batch(0))
    first = model.get_submodule("0")
    assert isinstance(first, nn.Linear)
    first.weight = nn.Parameter(first.weight.detach().clone())
    with pytest.raises(UnsupportedError, match="create the optimizer again"):
        step(*batch(0))


def _small(**options: Any) -> lt.PlannedStep:
    model = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lt.training_step(model, classify, optimizer, batch(0), effort="fast", **options)


def test_a_budget_that_is_missed_is_one_warning_with_a_budget_that_is_met() -> None:
    """So it is with several programs of one step; the step runs all the same."""
    with pytest.warns(UserWarning, match=r'training step misses its budget: .* met by budget="\d+ B"') as said:
        step = _small(budget="1 B", accumulate=2)
    assert len(said) == 1
    step(*batch(0))
    step(*batch(1))
    met = re.search(r'budget="(\d+ B)"', str(said[0].message))
    assert met is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _small(budget=met[1])


def test_a_plan_that_says_it_does_not_fit_is_refused_as_load_plan_does(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="misses its budget"):
        step = _small(budget="1 B")
    (file,) = step.save_plans(tmp_path)
    for given in (file, tmp_path):
        with pytest.raises(VerificationError, match="over_budget=True"):
            _small(plan=given)
        assert list(_small(plan=given, over_budget=True).plan.steps()) == list(step.plan.steps())


def test_the_verbs_take_a_planned_step_as_its_unmodified_program() -> None:
    step = _small(budget="90%")
    assert lowtide.plan(step).baseline_peak_bytes == step.result.baseline_peak_bytes
    assert str(lowtide.inspect(step)).startswith(step.unmodified.name)
    assert repr(step) == f"PlannedStep({step.result!r})"
