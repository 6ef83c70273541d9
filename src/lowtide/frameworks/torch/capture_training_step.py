"""Capturing a whole training step as one graph: the update of a parameter is ready when its gradient is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from lowtide.errors import UnsupportedError, UsageError
from lowtide.frameworks.torch.call_inputs import CallInputs
from lowtide.frameworks.torch.captured import Binding, Captured
from lowtide.frameworks.torch.module_tensors import ModuleTensors, check_modes, modes_of, modules_of
from lowtide.frameworks.torch.optimizer_state import OptimizerState, discover_state, raw_step, settings_of
from lowtide.frameworks.torch.tracing import FakeInputs, trace
from lowtide.frameworks.torch.training_step import TrainingStep
from lowtide.graph import Lifetime


def capture_training_step(step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """Capture a training step on a batch; the optimizer is the user's own, working on stand-ins while it is traced.

    Raises UnsupportedError for an optimizer whose step is no fixed program, UsageError for a loss that is no scalar.
    """
    modules = ModuleTensors.of(modules_of(step.model, step.loss_function))
    call = CallInputs.of(args, kwargs)
    live = modules.live()
    position = {id(tensor): index for index, tensor in enumerate(live)}
    updated: list[int] = []
    for parameter in step.parameters():
        if id(parameter) not in position:
            raise UnsupportedError("the optimizer updates a tensor that is no parameter of the model or its loss")
        updated.append(position[id(parameter)])
    fakes = FakeInputs([*live, *call.tensors])

    def gradients(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run forward and backward; returns the loss and the optimizer's parameters with their gradients set."""
        trainable = {index for index in updated if modules.trainable[index]}
        sources = [t.detach().requires_grad_() if index in trainable else t for index, t in enumerate(tensors)]
        with modules.replaced_by(sources[: len(live)]):
            inner_args, inner_kwargs = call.rebuild(sources[len(live) :])
            loss: Any = step.loss(*inner_args, **inner_kwargs)
            if not (isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad):
                raise UsageError("the loss of a training step must be a scalar tensor that requires grad")
            order = [index for index in updated if index in trainable]
            found = torch.autograd.grad(loss, [sources[index] for index in order], allow_unused=True)
        for index, gradient in zip(order, found, strict=True):
            sources[index].grad = gradient
        return loss.detach(), [sources[index] for index in updated]

    def prepare(parameters: list[torch.Tensor]) -> None:
        if step.before_update is not None:
            step.before_update(parameters)

    with fakes.rehearsal(), torch.enable_grad():
        _, parameters = gradients([fakes.empty(tensor) for tensor in fakes.tensors])
        prepare(parameters)
        state = discover_state(step.optimizer, parameters)
    state_forms = [entry.form for entry in state.entries]
    state_forms += [fakes.mode.from_tensor(step.optimizer.param_groups[group][key]) for group, key in state.settings]
    inputs = fakes.extended_by(state_forms, before=len(live))

    def flat(tensors: list[torch.Tensor]) -> list[Any]:
        held = len(live) + len(state_forms)
        loss, parameters = gradients([*tensors[: len(live)], *tensors[held:]])
        prepare(parameters)
        with state.replaced_by(parameters, tensors[len(live) : held]):
            raw_step(step.optimizer)
        return [loss]

    with torch.enable_grad():
        graph_module = trace(flat, inputs)
    binding = TrainingStepBinding(step, modules, call, state, modes_of(modules.modules), _settings(step))
    labels = modules.labels()
    held = [*labels, *state.labels([labels[index] for index in updated])]
    return Captured(
        name=f"{type(step.model).__name__} training step",
        graph_module=graph_module,
        inputs=(*((name, Lifetime.PERSISTENT) for name in held), *((name, Lifetime.INPUT) for name in call.names)),
        binding=binding,
        with_backward=True,
        example_args=tuple(args),
        example_kwargs=dict(kwargs),
    )


def _settings(step: TrainingStep) -> list[dict[str, Any]]:
    return [settings_of(group) for group in step.optimizer.param_groups]


@dataclass(frozen=True, eq=False)
class TrainingStepBinding(Binding):
    """Feeds a captured training step from the model, the optimizer's state and the batch."""

    step: TrainingStep
    modules: ModuleTensors
    call: CallInputs
    state: OptimizerState
    modes: tuple[bool, ...]
    settings: list[dict[str, Any]]
    made: list[tuple[torch.Tensor, str]] = field(default_factory=list[tuple[torch.Tensor, str]])
    """State entries that `materialize` made, so that they can be taken back."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        check_modes(self.modules.modules, self.modes)
        if _settings(self.step) != self.settings:
            raise UsageError(
                "the optimizer's settings changed since the step was captured; capture again, "
                "or give the learning rate as a tensor, which may change"
            )
        inputs = self.call.bind(args, kwargs)
        self.state.materialize()
        return [*self.modules.live(), *self.state.live(), *inputs]

    def finish(self, outputs: list[Any], sources: list[torch.Tensor]) -> Any:
        """Return the loss; gradients are consumed by the updates."""
        return outputs[0]

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return self.step(*args, **kwargs)

    def persistent(self) -> list[torch.Tensor]:
        return [*self.modules.live(), *self.state.live()]

    def materialize(self) -> None:
        parameters = self.state.parameters()
        self.made.extend((parameters[entry.parameter], entry.key) for entry in self.state.missing())
        self.state.materialize()

    def dematerialize(self) -> None:
        for parameter, key in self.made:
            entries = self.step.optimizer.state[parameter]
            entries.pop(key, None)
            if not entries:
                del self.step.optimizer.state[parameter]
        self.made.clear()
