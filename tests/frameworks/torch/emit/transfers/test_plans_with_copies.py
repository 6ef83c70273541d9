"""Plans with copies give bit-equal results, within the planned memory of device and host."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide import minimize
from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.offload import Host
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, verify
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from lowtide.frameworks.torch.model import TorchModel

N = 128
ONE = N * N * 4
HOST = Host(bandwidth_bytes_per_s=1e9)


def _views(x: torch.Tensor) -> torch.Tensor:
    a = x.exp()
    b = a.t() @ x
    c = (b @ b).sum(0, keepdim=True)
    return a[:1] * c + a.t()[:1]


def test_a_buffer_leaves_and_comes_back_and_its_views_with_it(digest: Any) -> None:
    """`a` is on the host while `b` is squared. Then a transposed and a sliced view read it."""
    inputs = (torch.randn(N, N) / N,)
    model = TorchModel((_views, inputs), host=HOST)
    graph = model.graph
    a = int(graph.writes[0][0])
    steps: list[Any] = []
    for step in Plan.baseline(graph).steps():
        steps.append(step)
        if step == Run(1):
            steps += [CopyOut(a, 1), Free(a)]
        if step == Run(3):
            steps.append(CopyIn(a, 1))
    steps.append(Free(a, 1))
    plan = Plan.from_steps(graph, steps)
    verify(graph, plan)
    peaks = simulate(graph, plan).peak_bytes
    assert peaks["host"] == ONE
    applied = model.apply(plan)
    cpu_host.restart()
    held = cpu_host.live_bytes
    assert digest(applied(*inputs)) == digest(_views(*inputs))
    assert cpu_host.peak_bytes - held == ONE
    assert cpu_host.live_bytes == held
    assert abs(lt.measure_captured(model.captured, applied).peak_bytes - peaks["cpu"]) <= 4096


def test_a_second_run_beside_a_copy_on_the_host_is_carried_out(digest: Any) -> None:
    """`a` is recomputed during a copy of its first result, which then comes back. Both are bit-equal."""
    inputs = (torch.randn(N, N) / N,)
    model = TorchModel((_views, inputs), host=HOST)
    graph = model.graph
    a = int(graph.writes[0][0])
    steps: list[Any] = []
    for step in Plan.baseline(graph).steps():
        steps.append(step)
        if step == Run(1):
            steps += [CopyOut(a, 1), Run(0), Free(a), CopyIn(a, 1), Free(a, 1)]
    plan = Plan.from_steps(graph, steps)
    verify(graph, plan)
    assert digest(model.apply(plan)(*inputs)) == digest(_views(*inputs))


def test_what_takes_over_the_storage_of_a_traveler_leaves_its_views_behind(digest: Any) -> None:
    """`a` is doubled in place while its copy is on the host. Its transpose is read before and after."""

    def function(x: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        turned = a.t()
        b = turned @ x
        c = a * 2
        return c.sum() + turned.sum(0) + b.sum(0)

    inputs = (torch.randn(N, N) / N,)
    model = TorchModel((function, inputs), host=HOST)
    graph = model.graph
    a, c = int(graph.writes[0][0]), int(graph.writes[2][0])
    steps: list[Any] = []
    for step in Plan.baseline(graph).steps():
        doubled = step == Run(2)
        steps += [CopyOut(a, 1), Run(2, ((a, c),)), CopyIn(a, 1)] if doubled else [step]
    plan = Plan.from_steps(graph, [*steps, Free(a, 1)])
    verify(graph, plan)
    assert digest(model.apply(plan)(*inputs)) == digest(function(*inputs))


def test_what_several_ops_write_does_not_travel() -> None:
    """Its aliases would keep the device memory alive."""
    model = TorchModel((lambda x: x.exp().mul_(2).sum(), (torch.randn(N, N),)), host=HOST)
    written = int(model.graph.writes[0][0])
    steps = [Run(0), Run(1), CopyOut(written, 1), Free(written), CopyIn(written, 1), Run(2), Free(written, 1)]
    plan = Plan.from_steps(model.graph, [*steps, Free(written)])
    verify(model.graph, plan)
    with pytest.raises(UnsupportedError, match="no op alone writes"):
        model.apply(plan)


def _training_step() -> tuple[lt.TrainingStep, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.2)]
    layers[-3].weight = layers[0].weight  # pyright: ignore[reportAttributeAccessIssue]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return lt.TrainingStep(model, lambda m, x: m(x).pow(2).mean(), optimizer), (torch.randn(512, 64),)


def _with_trips(graph: Graph, plan: Plan, random: Random) -> Plan:
    """Return a plan that copies many buffers to the host between two uses, at random places."""
    steps = list(plan.steps())
    uses: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        for buffer in graph.structure.touches[step.op].tolist() if isinstance(step, Run) else ():
            uses.setdefault(buffer, []).append(place)
    before: dict[int, list[Any]] = {}
    overwritten = set(graph.mutates.values.tolist())
    for buffer, places in uses.items():
        stays = graph.lifetimes[buffer] < Lifetime.INTERMEDIATE or not graph.sizes[buffer] or buffer in overwritten
        if stays or len(places) < 2:
            continue
        first = random.randrange(len(places) - 1)
        between = sorted(random.randint(places[first] + 1, places[first + 1]) for _ in range(3))
        trip = [CopyOut(buffer, 1), Free(buffer), CopyIn(buffer, 1), Free(buffer, 1)]
        for place, step in zip([*between, random.randint(between[2], len(steps))], trip, strict=True):
            before.setdefault(place, []).append(step)
    merged = [each for place, step in enumerate(steps) for each in (*before.get(place, ()), step)]
    return Plan.from_steps(graph, [*merged, *before.get(len(steps), ())])


@pytest.fixture(scope="module", name="model")
def model_fixture() -> TorchModel:
    """Return a training step, read once. Measuring restores it."""
    return TorchModel(_training_step(), host=HOST)


@pytest.mark.share_of_cases
@pytest.mark.parametrize("seed", range(3))
def test_random_trips_change_no_bit(seed: int, model: TorchModel, plans_of: Callable[[Graph, int], list[Plan]]) -> None:
    """Nearly every buffer visits the host, in random orders with all in-place pairs. Bits and peaks match the plan."""
    random = Random(seed)
    digests: set[str] = set()
    for plan in plans_of(model.graph, 1):
        travels = _with_trips(model.graph, plan, random)
        verify(model.graph, travels)
        predicted = simulate(model.graph, travels).peak_bytes
        plain, measured = (lt.measure_captured(model.captured, model.apply(each)) for each in (plan, travels))
        digests |= {plain.outputs_digest, measured.outputs_digest}
        assert measured.peak_bytes <= 1.01 * predicted["cpu"]
        assert measured.host_peak_bytes <= predicted["host"]
    assert len(digests) == 1


@pytest.mark.share_of_cases
@pytest.mark.parametrize("allow", [("offload",), ("reorder", "share", "offload"), ("share", "recompute", "offload")])
@pytest.mark.parametrize("budget", ["75%", "60%"])
def test_measured_peaks_are_the_predicted_ones(model: TorchModel, allow: tuple[str, ...], budget: str) -> None:
    """A training step with dropout and tied weights: bit-equal, with the planned peaks on device and host."""
    result = minimize(model.graph, budget=budget, allow=allow)
    assert result.transfers.bytes_out > 0
    held = cpu_host.live_bytes
    measured = model.measure(result.plan, timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes == pytest.approx(result.peak_bytes["cpu"], rel=0.01)
    if result.shortfall is None:
        assert measured.after_bytes <= int(budget[:-1]) / 100 * result.baseline_peak_bytes["cpu"] * 1.01
    assert measured.host_bytes == result.peak_bytes["host"]
    assert cpu_host.live_bytes == held


def test_a_plan_with_copies_is_for_the_host_it_was_made_with(model: TorchModel) -> None:
    plan = minimize(model.graph, budget="60%", allow={"offload"}).plan
    with pytest.raises(FingerprintError, match="host"):
        lt.apply(plan, model.captured)
    with pytest.raises(FingerprintError, match="host"):
        lowtide.apply(plan, model.captured, host=Host(bandwidth_bytes_per_s=2e9))
    assert lowtide.measure(plan, model.captured, host=HOST).outputs_equal
