"""Measure peak memory and time of any step, and predict its peak."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide.core.errors import UsageError, named_type
from lowtide.core.units import format_bytes, percent
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import noise_of
from lowtide.engine.planning.result import Result
from lowtide.frameworks.resident import ResidentGrowth
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.emit.in_arena import InArena
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.tensors import bytes_held_by
from lowtide.frameworks.torch.measure.allocation_events import host_peak_of_call, peak_of_call
from lowtide.frameworks.torch.measure.kept_state import KeptState
from lowtide.frameworks.torch.measure.step_times import seconds_of
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.programs import programs_run
from lowtide.frameworks.torch.reading.captured import Captured

_WARM_UP_CALLS = 2
_WARM_UP_CALLS_IN_ARENA = 5
"""The first call creates state, so addresses are learned twice."""
_TIMED_CALLS = 3

State = nn.Module | Optimizer | torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasuredStep:
    """Measured peak and time of a step, and its predicted peak."""

    measured_peak_bytes: int
    """Of bytes allocated in a call, with the batch."""
    measured_host_bytes: int
    """Of copies on the host."""
    resident_growth_bytes: int | None
    """Without the batch. None on a GPU, or if unknown."""
    arena_bytes: int | None
    """Of a step in `in_arena`, results included."""
    predicted_peak_bytes: int | None
    """None unless exactly one plan ran; see `reason`."""
    predicted_unmodified_peak_bytes: int | None
    reason: str | None
    median_seconds: float
    noise: float
    """Half the distance between the fastest and slowest timed call, divided by the median."""
    predicted_extra_time: float | None
    """As a share of the program's time; None without a prediction."""
    planned: tuple[Result, ...]
    eager: "MeasuredStep | None"
    """Without compiler and plan, if `with_eager`."""

    @property
    def measured_over_predicted(self) -> float | None:
        """The measured by the predicted peak."""
        return self.measured_peak_bytes / self.predicted_peak_bytes if self.predicted_peak_bytes else None

    def __repr__(self) -> str:
        share, eager = self.measured_over_predicted, self.eager
        of_predicted = "" if share is None else f"   (measured / predicted: {share:.3f})"
        arena = "" if self.arena_bytes is None else f"; arena {format_bytes(self.arena_bytes)}"
        rows = [
            ("measured peak", self.measured_peak_bytes, ""),
            ("predicted peak", self.predicted_peak_bytes, of_predicted),
            ("without a plan", self.predicted_unmodified_peak_bytes, "   (predicted)"),
            ("on the host", self.measured_host_bytes or None, "   (measured)"),
            ("eager peak", eager and eager.measured_peak_bytes, "   (measured)"),
            ("resident", self.resident_growth_bytes, f"   (growth{arena})"),
        ]
        lines = [f"{label:16}{format_bytes(size)}{note}" for label, size, note in rows if size is not None]
        if self.predicted_peak_bytes is None and self.planned:
            lines.insert(1, f"no prediction   {self.reason}")
        extra = self.predicted_extra_time
        notes = [] if extra is None else [f"plan predicted at {percent(extra, signed=True)}"]
        if eager is not None:
            ratio = self.median_seconds / eager.median_seconds
            notes.insert(0, f"eager {eager.median_seconds * 1e3:.1f} ms, ratio {ratio:.2f}")
        notes.append(f"calls differ by {percent(max(self.noise, 0.0 if eager is None else eager.noise))} each way")
        lines.append(f"step time       {self.median_seconds * 1e3:.1f} ms   ({'; '.join(notes)})")
        return "\n".join(lines)


def measure(
    step: Callable[..., Any],
    *batch: Any,
    state: Sequence[State] = (),
    with_eager: bool = False,
    timed_calls: int = _TIMED_CALLS,
) -> MeasuredStep:
    """Measure calls of a step: plain, compiled, or planned by `training_step` or `apply`.

    After two warm-up calls, one is measured and `timed_calls` are timed; another measures resident memory. Allocations
    inside kernels count. `with_eager` also measures the step without compiler and plan.

    Modules, optimizers and tensors in `state` start each call without gradients. They and random states are restored at
    the end. Modules and training steps add their own state. With `accumulate`, all calls of a step run on the batch.
    Raises UsageError unless the step is callable.
    """
    if not callable(step):
        raise UsageError(f"cannot measure {named_type(step)}; give a function or module that runs one step")
    program: Any = step.function if isinstance(step, InArena) else step
    captured = _captured_of(program)
    binding = None if captured is None else captured.binding
    if binding is not None:
        binding.materialize()
    if not isinstance(cast("object", state), Sequence):
        raise UsageError(f"state is {named_type(state)}; give a list of modules, optimizers and tensors")
    kept = _kept(program, state)
    accumulating: Any = _plain_step_of(program) if _calls_of(program) > 1 else None
    done = 0
    if accumulating is not None:
        done, accumulating.done = accumulating.done, 0
    try:
        eager = _measured_eagerly(program, batch, kept, timed_calls) if with_eager else None
        return _measured(step, program, batch, kept, timed_calls, eager)
    finally:
        if kept is not None:
            kept.put_back_with_gradients()
        if accumulating is not None:
            accumulating.done = done
        if binding is not None:
            binding.dematerialize()


def _measured(
    step: Callable[..., Any],
    program: Callable[..., Any],
    batch: Sequence[Any],
    kept: KeptState | None,
    timed_calls: int,
    eager: MeasuredStep | None,
) -> MeasuredStep:
    tensors = pytree.tensors_in(batch)
    device = _device_of(tensors, kept)

    calls = _calls_of(program)

    def call() -> Any:
        return [step(*batch) for _ in range(calls)]

    def prepare() -> None:
        if kept is not None:
            kept.clear_gradients()

    placed = step if isinstance(step, InArena) else None
    for _ in range(_WARM_UP_CALLS if placed is None else _WARM_UP_CALLS_IN_ARENA):
        prepare()
        call()
    prepare()
    growth = _growth_of(call, placed) if device.type == "cpu" else None
    prepare()
    with programs_run() as programs:
        on_host, (peak, _) = host_peak_of_call(lambda: peak_of_call(call, device), device)
    seconds: list[float] = []
    for _ in range(timed_calls):
        prepare()
        seconds.append(seconds_of(call, device))
    held = bytes_held_by(tensor for tensor in tensors if tensor.device == device)
    prediction = predict(program, programs)
    return MeasuredStep(
        measured_peak_bytes=peak + held,
        measured_host_bytes=on_host,
        resident_growth_bytes=growth,
        arena_bytes=None if placed is None else placed.reserved_bytes,
        predicted_peak_bytes=_on(device, prediction.peak_bytes),
        predicted_unmodified_peak_bytes=_on(device, prediction.unmodified_peak_bytes),
        reason=prediction.reason,
        median_seconds=median(seconds),
        noise=noise_of(seconds),
        predicted_extra_time=prediction.planned[0].extra_time if len(prediction.planned) == 1 else None,
        planned=prediction.planned,
        eager=eager,
    )


def _growth_of(call: Callable[[], Any], placed: InArena | None) -> int | None:
    if placed is not None:
        placed.arena.trim()
    growth = ResidentGrowth()
    result = call()
    grown = growth.highest_bytes()
    del result
    return grown


def _on(device: torch.device, peaks: Mapping[str, int] | None) -> int | None:
    return None if peaks is None else peaks.get(str(device))


def _device_of(tensors: Sequence[torch.Tensor], kept: KeptState | None) -> torch.device:
    known = [*tensors, *(kept.tensors if kept is not None else ())]
    return next((tensor.device for tensor in known if tensor.device.type != "cpu"), torch.device("cpu"))


def _calls_of(step: object) -> int:
    return int(getattr(_plain_step_of(step), "accumulate", 1))


def _plain_step_of(step: object) -> Any:
    return getattr(step, "step", step)


def _captured_of(step: object) -> Captured | None:
    captured = getattr(step, "captured", None)
    return captured if isinstance(captured, Captured) else None


def _measured_eagerly(
    step: Callable[..., Any], batch: Sequence[Any], kept: KeptState | None, timed_calls: int
) -> MeasuredStep:
    captured = _captured_of(step)
    if _calls_of(step) > 1:
        plain = _plain_step_of(step)
        return _measured(plain, plain, batch, kept, timed_calls, None)
    if captured is not None:
        return _measured(captured.run_original, captured.run_original, batch, kept, timed_calls, None)
    with torch.compiler.set_stance("force_eager"):
        return _measured(step, step, batch, kept, timed_calls, None)


def _kept(step: object, given: Sequence[State]) -> KeptState | None:
    captured = _captured_of(step)
    tensors = [] if captured is None else captured.persistent()
    optimizers: list[Optimizer] = []
    owner = _plain_step_of(step)
    own = [getattr(owner, name, None) for name in ("model", "optimizer")]
    for part in (step, *own, *given):
        if isinstance(part, nn.Module):
            tensors += [*part.parameters(), *part.buffers()]
        elif isinstance(part, Optimizer):
            optimizers.append(part)
        elif isinstance(part, torch.Tensor):
            tensors.append(part)
        elif any(part is each for each in given):
            raise UsageError(f"{named_type(part)} is not state; give modules, optimizers and tensors")
    return KeptState(tensors, optimizers) if tensors or optimizers else None


@dataclass(frozen=True, slots=True)
class Prediction:
    peak_bytes: Mapping[str, int] | None = None
    unmodified_peak_bytes: Mapping[str, int] | None = None
    reason: str | None = None
    planned: tuple[Result, ...] = ()


def predict(step: object, programs: Sequence[PlannedModule]) -> Prediction:
    if isinstance(step, Applied) and step.planned is not None:
        graph, plan = step.planned
        return Prediction(simulate(graph, plan).peak_bytes, simulate(graph, Plan.baseline(graph)).peak_bytes)
    own = getattr(step, "result", None)
    if isinstance(own, Result):
        if _calls_of(step) > 1:
            space = next(iter(own.peak_bytes))
            return Prediction({space: cast("Any", step).peak_of_all_calls()}, planned=(own,))
        return Prediction(own.peak_bytes, own.baseline_peak_bytes, planned=(own,))
    planned = tuple(program.result for program in programs)
    if not programs:
        return Prediction(reason="nothing that ran was planned by lowtide")
    if len(programs) > 1:
        reason = f"{len(programs)} programs ran, and none predicts the tensors that the others keep alive"
        return Prediction(reason=reason, planned=planned)
    (only,) = programs
    return Prediction(only.predicted_peak_bytes, only.result.baseline_peak_bytes, planned=planned)
