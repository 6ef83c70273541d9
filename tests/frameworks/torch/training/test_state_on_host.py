"""Optimizer state on the host: the bits of the plain loop, in a budget that covers everything on the device."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

import lowtide.torch as lt
from lowtide.core.progress import Stage
from lowtide.engine.planning.plan_state import StateSearch, plan_with_state
from lowtide.engine.planning.program import ALL as EIGHTHS
from lowtide.engine.planning.program import Program
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE, finish_copies
from lowtide.frameworks.torch.emit.transfers import host_for
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.options import DEFAULTS
from lowtide.reporting.page.facts import Facts
from tests.frameworks.torch.training.test_every_optimizer import Optimizers

pytestmark = pytest.mark.usefixtures("cache_of_the_run")
N_STEPS = 3
WIDTH = 64
ALL = ("reorder", "share", "recompute", "offload")
WITHOUT_LARGE_STATE = {"sgd", "adafactor", "adafactor-foreach"}
"""These keep no state that is as large as a parameter."""


def make_model(name: str = "adamw") -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = (part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    model = nn.Sequential(*layers, nn.Dropout(0.1)).train()
    return model, Optimizers[name](model.parameters())


def random_batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(seed))


def squared_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def plan_step(model: nn.Module, optimizer: Any, *, parameters: float = 2.2, **more: Any) -> lt.PlannedStep:
    """Return a step for a budget of so many times the parameters, which the state alone would exceed."""
    held = sum(parameter.nbytes for parameter in model.parameters())
    options: Any = {
        "budget": f"{int(parameters * held)}B",
        "allow": ALL,
        "host_bandwidth": "25 GB/s",
        "effort": "fast",
        **more,
    }
    return lt.training_step(model, squared_loss, optimizer, (random_batch(),), **options)


def train(step: Any, model: nn.Module, optimizer: Any, digest: Callable[[Any], str], more: Any = None) -> list[str]:
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.5)
    found: list[str] = []
    for number in range(N_STEPS):
        torch.manual_seed(number)
        loss = step(random_batch(number))
        schedule.step()
        found.append(digest([loss, model.state_dict(), optimizer.state_dict(), more, torch.get_rng_state()]))
    return found


def trained_with_parts(
    plan: Callable[..., Any],
    name: str,
    more: dict[str, Any],
    digest: Callable[[Any], str],
    between: Callable[[Any], object] | None = None,
) -> tuple[list[Any], list[list[str]]]:
    """Train two planned steps with other parts twice, the second one without its plan, and do something in between.

    Returns both steps and their traces.
    """
    steps: list[Any] = []
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model(name)
        given = dict(more)
        if "grad_scaler" in more:
            given["grad_scaler"] = torch.amp.GradScaler("cpu")
        steps.append(plan(model, optimizer, parameters=2.6, **given))
        run = steps[-1] if planned else steps[-1].step
        traces.append(train(run, model, optimizer, digest))
        if between is not None:
            between(run)
        traces[-1] += train(run, model, optimizer, digest)
    return steps, traces


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", [name for name in Optimizers if name not in WITHOUT_LARGE_STATE])
def test_every_optimizer_keeps_the_bits_of_the_plain_loop(name: str, digest: Callable[[Any], str]) -> None:
    """Losses, parameters and state over several steps with a schedule, with all moments on the host."""
    model, optimizer = make_model(name)
    step = plan_step(model, optimizer)
    assert step.result.shortfall is None
    on_host = step.result.persistent_bytes["host"]
    assert on_host > 0
    found = train(step, model, optimizer, digest)
    large = [value for state in optimizer.state.values() for value in state.values() if value.numel() >= WIDTH**2]
    assert any(cpu_host.holds(value) for value in large)
    plain, own = make_model(name)
    assert found == train(lt.TrainingStep(plain, squared_loss, own), plain, own, digest)


def test_the_budget_covers_what_the_device_holds_and_the_peak_is_as_measured() -> None:
    model, optimizer = make_model()
    step = plan_step(model, optimizer)
    result = step.result
    step(random_batch())
    moments = [state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    assert result.persistent_bytes["host"] == sum(each.nbytes for each in moments if cpu_host.holds(each))
    held = sum(parameter.nbytes for parameter in model.parameters())
    measured = step.measure()
    assert measured.outputs_equal
    assert measured.host_bytes == result.persistent_bytes["host"] + result.peak_bytes["host"]
    assert measured.after_bytes == pytest.approx(result.peak_bytes["cpu"], rel=0.02)
    assert result.persistent_bytes["cpu"] + result.peak_bytes["cpu"] <= int(2.2 * held)
    assert result.transfers.state_bytes_out == result.persistent_bytes["host"]


def test_a_report_does_not_call_state_on_the_host_chunks() -> None:
    result = plan_step(*make_model()).result
    assert result.state_on_host_bytes > 0
    for known in (result, None):
        assert not Facts.of(result.graph, result.plan, result=known, unmodified=result.unmodified).in_chunks


def test_no_more_state_is_on_the_host_than_the_budget_needs() -> None:
    """A part of it, nothing if all state fits, and nothing for a percentage, which does not count it."""
    model, optimizer = make_model()
    moments = 2 * sum(parameter.nbytes for parameter in model.parameters())
    assert 0 < plan_step(model, optimizer).result.persistent_bytes["host"] < moments
    for budget in ({"parameters": 9.0}, {"budget": "80%"}):
        model, optimizer = make_model()
        assert plan_step(model, optimizer, **budget).result.persistent_bytes["host"] == 0


def program_with_host(model: nn.Module, batch_size: int, parameters: float) -> tuple[Program, PlanSettings]:
    """Return a captured step, and settings for a budget of so many times the parameters."""
    step = lt.TrainingStep(model, squared_loss, torch.optim.AdamW(model.parameters()))
    program = TorchModel(capture((step, (torch.randn(batch_size, WIDTH),))))
    held = sum(parameter.nbytes for parameter in model.parameters())
    settings = replace(DEFAULTS, budget=f"{int(parameters * held)}B", techniques=frozenset(ALL))
    return program.with_host(host_for(program.graph, "25 GB/s", None)), settings


@pytest.mark.parametrize(("batch_size", "parameters"), [(16, 1.8), (64, 4.0)])
def test_no_other_share_of_the_state_on_the_host_takes_less_time(batch_size: int, parameters: float) -> None:
    """Compared with plans of all eighths, where most or little of the state is on the host."""
    torch.manual_seed(0)
    layers = (part for _ in range(5) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)))
    model = nn.Sequential(*layers).train()
    program, settings = program_with_host(model, batch_size, parameters)
    search = StateSearch(program, settings, None, None)
    shares = [search.plan(share) for share in range(EIGHTHS + 1)]
    found = plan_with_state(program, settings)
    assert found.shortfall is None
    assert found.extra_time <= min(each.extra_time for each in shares if each.shortfall is None)


class InterruptAt:
    """A report that presses Ctrl-C at one message."""

    def __init__(self, place: int) -> None:
        self.place, self.seen = place, 0

    def __call__(self, _message: str) -> None:
        self.seen += 1
        if self.seen == self.place:
            raise KeyboardInterrupt


@pytest.mark.parametrize("parameters", [1.0, 2.2, 4.0])
def test_ctrl_c_ends_the_search_of_shares_with_a_plan_marked_interrupted(
    parameters: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a share is ordered, recomputed, or planned with copies of activations, and for an impossible budget."""
    monkeypatch.setenv("LOWTIDE_CACHE", "off")  # known plans send other messages
    program, settings = program_with_host(make_model()[0], 16, parameters)
    messages: list[str] = []
    plan_with_state(program, settings, messages.append)
    places = [place for place, message in enumerate(messages, 1) if message != Stage.DONE]
    for place in places[:: len(places) // 5]:
        result = plan_with_state(program, settings, InterruptAt(place))
        assert (result.status, result.plan.status) == ("interrupted", "interrupted")


def test_without_offload_nothing_moves() -> None:
    model, optimizer = make_model()
    with pytest.warns(UserWarning, match="persistent"):
        step = plan_step(model, optimizer, allow=("reorder", "share", "recompute"), host_bandwidth=None)
    step(random_batch())
    assert not any(cpu_host.holds(value) for state in optimizer.state.values() for value in state.values())


@pytest.mark.share_of_cases
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("adamw", {"clip_grad_norm": 0.01}),
        ("adamw-foreach", {"clip_grad_value": 0.001}),
        ("adamw", {"accumulate": 3}),
        ("adamw-fused", {"grad_scaler": True}),
    ],
    ids=lambda more: "".join(more) if isinstance(more, dict) else more,
)
def test_other_parts_of_the_step_work(name: str, more: dict[str, Any], digest: Callable[[Any], str]) -> None:
    """Clipping, accumulation and a GradScaler."""
    steps, traces = trained_with_parts(plan_step, name, more, digest)
    assert all(step.result.persistent_bytes["host"] > 0 for step in steps)
    assert traces[0] == traces[1]


def test_an_averaged_model_follows(digest: Callable[[Any], str]) -> None:
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_model()
        average = AveragedModel(model, multi_avg_fn=None, avg_fn=lambda old, new, _: old + (new - old) * 0.1)
        update: Any = average.update_parameters
        step: Any = lt.TrainingStep(model, squared_loss, optimizer, after_update=update)
        if planned:
            step = plan_step(model, optimizer, parameters=3.4, after_update=update)
            assert step.result.persistent_bytes["host"] > 0
        traces.append(train(step, model, optimizer, digest, average.state_dict()))
    assert traces[0] == traces[1]


def test_a_checkpoint_resumes_with_and_without_state_on_the_host(digest: Callable[[Any], str]) -> None:
    """State dicts are those of the plain optimizer, also through a file, and loaded state goes back to the host."""
    expected_model, expected_optimizer = make_model()
    plain = lt.TrainingStep(expected_model, squared_loss, expected_optimizer)
    train(plain, expected_model, expected_optimizer, digest)
    expected = train(plain, expected_model, expected_optimizer, digest)
    for hosted in ((True, False), (False, True)):
        model, optimizer = make_model()
        first: Any = plan_step(model, optimizer) if hosted[0] else lt.TrainingStep(model, squared_loss, optimizer)
        train(first, model, optimizer, digest)
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        model, optimizer = make_model()
        second: Any = plan_step(model, optimizer) if hosted[1] else lt.TrainingStep(model, squared_loss, optimizer)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        assert train(second, model, optimizer, digest) == expected
        assert hosted[1] == any(cpu_host.holds(state["exp_avg"]) for state in optimizer.state.values())


def test_an_exception_loses_no_update_that_was_made_on_the_device() -> None:
    """The copy on the device goes back to the host, and only once."""
    state = cpu_host.empty_like(torch.empty(WIDTH)).fill_(1.0)
    on_device = STATE_TO_DEVICE(state, torch.device("cpu"))
    on_device.add_(1.0)
    finish_copies([state])
    assert torch.equal(state, torch.full((WIDTH,), 2.0))
    on_device.add_(1.0)
    finish_copies([state])
    assert torch.equal(state, torch.full((WIDTH,), 2.0))


def test_a_saved_plan_loads_again_and_an_older_one_too(tmp_path: Path) -> None:
    """The plan file names the program with its state on the host; a plan without it stays as it is."""
    model, optimizer = make_model()
    step = plan_step(model, optimizer)
    (path,) = step.save_plans(tmp_path)
    again = plan_step(*make_model(), plan=path)
    assert again.result.persistent_bytes == step.result.persistent_bytes
    assert again.result.peak_bytes == step.result.peak_bytes
    assert again.result.extra_cost == step.result.extra_cost
    plain = plan_step(*make_model(), parameters=9.0)
    (path,) = plain.save_plans(tmp_path / "plain")
    assert plan_step(*make_model(), parameters=9.0, plan=path).result.persistent_bytes["host"] == 0


def test_host_capacity_limits_the_state_on_the_host() -> None:
    held = sum(parameter.nbytes for parameter in make_model()[0].parameters())
    step = plan_step(*make_model(), parameters=3.4, host_capacity=f"{int(1.5 * held)}B")
    assert step.result.shortfall is None
    assert 0 < step.result.persistent_bytes["host"] + step.result.peak_bytes["host"] <= int(1.5 * held)


def test_updates_wait_for_no_copy_where_the_budget_has_room_to_prefetch() -> None:
    """With room for a second parameter's state, less time is lost than if each copy waits for the one before."""
    tight, roomy = (
        plan_step(*make_model(), parameters=parameters, host_bandwidth="2 GB/s").result for parameters in (2.05, 2.6)
    )
    assert roomy.transfers.stall_seconds < tight.transfers.stall_seconds
