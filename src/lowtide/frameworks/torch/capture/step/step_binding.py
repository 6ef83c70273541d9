"""The inputs and outputs of a captured training step."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.module_tensors import ModuleTensors, check_modes
from lowtide.frameworks.torch.capture.state.python_state import PythonState
from lowtide.frameworks.torch.capture.state.rehearsal import Rehearsal, Rehearsed
from lowtide.frameworks.torch.capture.step.decisions import Decisions
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.optimizer_update import refuse_step_hooks
from lowtide.frameworks.torch.capture.step.training_step import Part, TrainingStep
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.fully_sharded import reshard
from lowtide.frameworks.torch.internals.host_memory import HOST, home_of
from lowtide.frameworks.torch.internals.optimizers import growth_of, live_scale, note_step, update_scale
from lowtide.frameworks.torch.internals.padded_parts import as_owned
from lowtide.frameworks.torch.internals.tensors import version_of
from lowtide.frameworks.torch.reading.captured import Binding, CaptureMismatchError

_MOST_NAMES = 4


def form_of(tensor: torch.Tensor) -> Any:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


@dataclass(frozen=True, eq=False)
class TrainingStepBinding(Binding):
    """Feeds a captured training step from model, optimizer and batch."""

    step: TrainingStep
    modules: ModuleTensors
    call: CallInputs
    state: OptimizerState
    forms: tuple[Any, ...]
    part: Part
    updated: tuple[int, ...]
    """Positions of the optimizer's parameters among the modules' tensors."""
    received: tuple[int, ...]
    """Parameters of the optimizer that get a gradient."""
    modes: tuple[bool, ...]
    settings: list[dict[str, Any]]
    symbols: tuple[str, ...]
    decisions: Decisions
    rehearsed: Rehearsed
    rehearse: Callable[[tuple[Any, ...], Mapping[str, Any]], Rehearsal]
    keeps_after_update: bool
    on_host: frozenset[int] = frozenset()
    parameters_on_host: Mapping[int, torch.device] = field(default_factory=dict[int, torch.device])
    gradients_on_host: frozenset[int] = frozenset()
    """Indices into `received`."""
    versions: list[int] = field(default_factory=list[int])
    made: list[tuple[torch.Tensor, str]] = field(default_factory=list[tuple[torch.Tensor, str]])
    present: list[PythonState] = field(default_factory=list[PythonState])

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        if self.step.part != self.part:
            raise CaptureMismatchError("this graph is for another call of the step; make its calls in order")
        inputs = self.call.bind(args, kwargs)
        reshard(self.modules.modules)
        self.step.python.check(self.rehearsed, lambda: self.rehearse(args, kwargs))
        refuse_step_hooks(self.step.optimizer)
        check_modes(self.modules.modules, self.modes)
        if self.state.fixed_settings() != self.settings:
            raise CaptureMismatchError("the optimizer's settings changed since the step was captured; capture again")
        live = self.modules.live()
        if any(live[place] is not each for place, each in zip(self.updated, self.state.parameters(), strict=True)):
            raise CaptureMismatchError("a parameter was replaced; create the optimizer again, then the step")
        self.modules.put_on_host(self.parameters_on_host)
        self.state.materialize(self.on_host)
        scalars = self.state.scalars.live(self.step.optimizer)
        held = self._held()
        if tuple(map(form_of, held)) != self.forms:
            raise CaptureMismatchError(
                "a model or optimizer tensor changed dtype, shape, strides or device; capture again"
            )
        if not self.decisions.hold([*held, *inputs], dict(zip(self.symbols, scalars, strict=True))):
            raise CaptureMismatchError("the step would take another branch; capture again")
        self.versions[:] = map(version_of, held)
        return [*held, *self._accumulated(), *self._scale(), *inputs, *scalars]

    def bring_to_device(self) -> None:
        self.modules.put_on_host({})
        self.state.bring_to_device()

    def movable(self) -> list[torch.Tensor]:
        """Return the modules' tensors; none if unplanned code uses them after a call."""
        return [] if self.keeps_after_update else self.modules.live()

    def with_on_host(
        self, homes: Mapping[int, torch.device], state: Collection[int] = (), gradients: Collection[int] = ()
    ) -> "TrainingStepBinding":
        forms = list(self.forms)
        first = len(self.modules.names)
        for place in (*homes, *(first + entry for entry in state)):
            dtype, shape, strides, device = forms[place]
            forms[place] = dtype, shape, strides, HOST if device.type == "cuda" else device
        return replace(
            self,
            on_host=frozenset(state),
            parameters_on_host=homes,
            gradients_on_host=frozenset(gradients),
            forms=tuple(forms),
        )

    def _held(self) -> list[torch.Tensor]:
        return [*self.modules.local(), *self.state.parts()]

    def _scale(self) -> list[torch.Tensor]:
        scaler = self.step.grad_scaler
        return [] if scaler is None else [live_scale(scaler, home_of(local_part(self.state.parameters()[0])))]

    def _accumulated(self) -> list[torch.Tensor]:
        """Return gradients of earlier calls, and memory for those on the host."""
        parameters, waiting = self.state.parameters(), self.step.waiting
        if self.part.first:
            waiting.clear()
            there = [self.received[place] for place in sorted(self.gradients_on_host)]
            return [waiting.memory(position, parameters[position]) for position in there]
        found = [
            waiting.take(position, parameters[position], on_host=place in self.gradients_on_host)
            for place, position in enumerate(self.received)
        ]
        present = [gradient for gradient in found if gradient is not None]
        if len(present) < len(found):
            raise UsageError("a gradient of an earlier call is gone; do not clear gradients within a step")
        if self.part.last:
            for position in self.received:
                parameters[position].grad = None
        return present

    def finish(self, outputs: list[Any], sources: list[Any]) -> Any:
        parameters = self.state.parameters()
        stored = [outputs.pop() for _ in self.rehearsed.effects.stored][::-1]
        if self.part.first and not self.part.last:
            on_device = iter(outputs[1:])
            for place, position in enumerate(self.received):
                if place in self.gradients_on_host:
                    self.step.waiting.note(position)
                else:
                    parameters[position].grad = as_owned(next(on_device), parameters[position])
        if self.part.last:
            self.step.waiting.clear()
            note_step(self.step.optimizer)
            if self.step.grad_scaler is not None:
                update_scale(self.step.grad_scaler, self.step.optimizer, outputs[1])
        self.step.python.finish(self.rehearsed, stored)
        if self.part.last and self.keeps_after_update and not self.step.python.is_repeated:
            self.step.run_after_update()
        self.step.advance()
        return outputs[0]

    def note_failure(self, error: BaseException, *, counts_changes: bool) -> None:
        """Add a note with the parameters whose update had begun. The next call starts a step."""
        labels = self.modules.labels()
        names = [labels[place] for place in self.updated]
        owners = dict(zip(self.updated, names, strict=True))
        first = len(labels)
        owners |= {first + place: names[entry.parameter] for place, entry in enumerate(self.state.entries)}
        versions = zip(map(version_of, self._held()), self.versions, strict=True)
        changed = {owners[place] for place, (now, before) in enumerate(versions) if now != before and place in owners}
        begun = [name for name in names if name in changed] if counts_changes or not self.part.last else None
        error.add_note(describe_failed_call(begun, len(names), drops_gradients=not self.part.first))
        self.step.done = 0

    def rewind(self) -> None:
        self.step.done = self.part.done

    def one_thread(self) -> AbstractContextManager[None]:
        return self.step.one_thread()

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        start = self.rehearsed.start
        if start is not None:
            start.restore()
        self.bring_to_device()
        try:
            return self.step(*args, **kwargs)
        finally:
            if start is not None:
                start.restore()

    def persistent(self) -> list[torch.Tensor]:
        held = [*self._held(), *self._scale()]
        scaler = self.step.grad_scaler
        return held if scaler is None else [*held, growth_of(scaler)]

    def materialize(self) -> None:
        """Create missing state, and let calls run from the captured Python state without effects."""
        start = self.rehearsed.start
        if start is not None:
            self.present.append(start.renewed())
            start.restore()
        self.step.python.is_repeated = True
        parameters = self.state.parameters()
        self.modules.put_on_host({})
        self.made.extend((parameters[entry.parameter], entry.key) for entry in self.state.missing())
        self.state.materialize()

    def dematerialize(self) -> None:
        self.step.python.is_repeated = False
        if self.present:
            self.present.pop().restore()
        for parameter, key in self.made:
            entries = self.step.optimizer.state[parameter]
            entries.pop(key, None)
            if not entries:
                del self.step.optimizer.state[parameter]
        self.made.clear()


def describe_failed_call(begun: Sequence[str] | None, n_parameters: int, *, drops_gradients: bool) -> str:
    if begun is None:
        parts = ["lowtide: some updates of this call may be complete and others not; load a checkpoint"]
    elif begun:
        named = ", ".join([*begun[:_MOST_NAMES], *(["..."] if len(begun) > _MOST_NAMES else [])])
        parts = [
            f"lowtide: this call had begun to update {len(begun)} of {n_parameters} parameters ({named}); "
            "load a checkpoint"
        ]
    else:
        parts = ["lowtide: this call failed before its first update; parameters and optimizer state are unchanged"]
    if drops_gradients:
        parts.append("gradients of earlier calls are dropped, and the next call starts a step")
    return "; ".join(parts)
