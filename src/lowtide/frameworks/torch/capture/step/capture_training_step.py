"""Capture a whole training step as one graph."""

import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.module_tensors import ModuleTensors, modes_of, modules_of
from lowtide.frameworks.torch.capture.state.effects import recorded_prints
from lowtide.frameworks.torch.capture.state.python_state import PythonState
from lowtide.frameworks.torch.capture.state.rehearsal import Rehearsal, Rehearsed, stored_tensors
from lowtide.frameworks.torch.capture.state.signature import SignatureRecorder, may_decide
from lowtide.frameworks.torch.capture.step.decisions import ScalarValues
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState, discover_state, initial_values
from lowtide.frameworks.torch.capture.step.optimizer_update import (
    UpdateCalls,
    raw_step,
    refuse_hooks,
    refuse_unless_fused,
    scaled_step,
    scaled_step_spelled_out,
    swapped,
    symbolic_choices,
)
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding, form_of
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.capture.tracing import FakeInputs, trace
from lowtide.frameworks.torch.internals.distributed import distributed_twin, is_distributed, local_part
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.fully_sharded import reshard
from lowtide.frameworks.torch.internals.optimizers import found_infinities, scaling_by, unscale_by_plain_ops
from lowtide.frameworks.torch.internals.padded_parts import padded_gradient, part_of, traced_rows, use_own_rows
from lowtide.frameworks.torch.internals.symbolic_scalars import new_scalar, silent_branches, symbol_name
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.out_of_place import write_out_of_place


def capture_training_step(step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """Capture a training step on a batch.

    Raises UnsupportedError if the update is not fixed, UsageError for a loss that is not a scalar.
    """
    # before the Python state is noted, which has the parameters of modules
    reshard(modules_of(*step.traced_functions().values()))
    scaler, part = step.grad_scaler, step.part
    if scaler is not None and not step.spells_out_fused:
        refuse_unless_fused(step.optimizer)
    if scaler is not None and any(map(is_distributed, step.parameters())):
        raise UnsupportedError("a grad_scaler does not work with distributed parameters; train in bfloat16 without it")
    discovered: list[_Discovered] = []
    rehearsal = rehearse_step(step, args, kwargs, discovered)
    modules = _modules_of(step)
    call = CallInputs.of(args, kwargs)
    program = _StepProgram(step, modules, call)
    parts = modules.local()
    fakes = FakeInputs([*parts, *call.tensors])
    if not discovered:
        with recorded_prints(None), _undone(rehearsal.state):
            program.run_on_fakes(fakes, SignatureRecorder(), discovered)
    state, receiving = discovered[-1]
    received = [] if part.first else receiving
    state_forms = [entry.form for entry in state.entries]
    state_forms += [fakes.mode.from_tensor(step.optimizer.param_groups[group][key]) for group, key in state.settings]
    shape_env: Any = fakes.mode.shape_env
    names = [entry.label for entry in state.scalars.entries]
    values = state.scalars.live(step.optimizer)
    scalars = [new_scalar(shape_env, name, float(value)) for name, value in zip(names, values, strict=True)]
    gradient_forms = [fakes.tensors[index] for index in received]
    scale_forms = [] if scaler is None else [fakes.mode.from_tensor(torch.ones(()))]
    inputs = fakes.extended_by([*state_forms, *gradient_forms, *scale_forms], before=len(parts), scalars=scalars)
    own, held = len(parts), len(parts) + len(state_forms)
    scale_place = held + len(received)
    present = [*parts, *_present_values(state)]
    calls, followed = UpdateCalls(), ScalarValues(shape_env)

    def flat(given: list[Any]) -> list[Any]:
        tensors, symbols = given[: len(inputs.tensors)], given[len(inputs.tensors) :]
        for position, (traced, value) in enumerate(zip(tensors[:held], present, strict=True)):
            if value is None or is_fake(value):
                continue
            if value.numel() == 1 or (position < own and may_decide(value)):
                followed.follow(traced, value, position)
        batch = zip(tensors[scale_place + len(scale_forms) :], call.tensors, strict=True)
        for position, (traced, value) in enumerate(batch):
            if may_decide(value):
                followed.follow(traced, value, held + position)

        def update(parameters: list[torch.Tensor]) -> None:
            with state.replaced_by(parameters, tensors[own:held], symbols), calls:
                if scaler is None:
                    raw_step(step.optimizer)
                else:
                    (scaled_step_spelled_out if step.spells_out_fused else scaled_step)(scaler, step.optimizer)

        sources = [*tensors[:own], *tensors[scale_place + len(scale_forms) :]]
        with nullcontext() if scaler is None else scaling_by(scaler, tensors[scale_place]), followed:
            results = program.run(sources, tensors[held:scale_place], update if part.last else None, scaler)
            stored = stored_tensors(rehearsal.state, program.given())
            return [*results, *(each.detach() for each in stored)]

    def connect(graph: Graph) -> None:
        placeholders = graph.find_nodes(op="placeholder")[len(inputs.tensors) :]
        calls.connect(graph, dict(zip(map(symbol_name, scalars), placeholders, strict=True)))
        use_own_rows(graph, step.parameters())

    effects = recorded_prints(None), _undone(rehearsal.state)
    with effects[0], effects[1], torch.enable_grad(), symbolic_choices(step.optimizer), silent_branches():
        graph_module = trace(flat, inputs, connect)
    updated = program.updated
    binding = TrainingStepBinding(
        step,
        modules,
        call,
        state,
        forms=tuple(map(form_of, inputs.tensors[:held])),
        part=part,
        updated=tuple(updated),
        received=tuple(updated.index(index) for index in program.receiving),
        modes=modes_of(modules.modules),
        settings=state.fixed_settings(),
        symbols=tuple(map(symbol_name, scalars)),
        decisions=followed.decisions(),
        rehearsed=Rehearsed(rehearsal),
        rehearse=partial(rehearse_step, step),
        keeps_after_update=step.keeps_after_update,
    )
    labels = modules.labels()
    persistent = [*labels, *state.labels([labels[index] for index in updated])]
    named = (
        *((name, Lifetime.PERSISTENT) for name in persistent),
        *((f"{labels[i]}.grad", Lifetime.DONATED if part.last else Lifetime.PERSISTENT) for i in received),
        *(("grad_scaler.scale", Lifetime.PERSISTENT) for _ in scale_forms),
        *((name, Lifetime.INPUT) for name in call.names),
        *((name, Lifetime.PERSISTENT) for name in names),
    )
    return Captured(
        name=f"{type(step.model).__name__} training step",
        graph_module=write_out_of_place(graph_module, named, _loss_of(graph_module)),
        inputs=named,
        binding=binding,
        with_backward=True,
        example_args=tuple(args),
        example_kwargs=dict(kwargs),
    )


class _Removed(nn.ParameterList):
    """Parameters of the optimizer that were removed from the model. They get no gradients."""


def _modules_of(step: TrainingStep) -> ModuleTensors:
    roots = modules_of(*step.traced_functions().values())
    inner = [each for root in roots for each in root.modules()]
    updated = {id(each): each for each in step.parameters()}
    present = {id(each): module for module in inner for each in module.parameters(recurse=False)}
    step.owners.update((key, weakref.ref(present[key])) for key in updated.keys() & present.keys())
    known = set(map(id, inner))
    removed = [each for key, each in updated.items() if key in step.owners and id(step.owners[key]()) not in known]
    return ModuleTensors.of([*roots, _Removed(removed)] if removed else roots)


class _Discovered(NamedTuple):
    state: OptimizerState
    receiving: list[int]


def rehearse_step(
    step: TrainingStep,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    discovered: list[_Discovered] | None = None,
) -> Rehearsal:
    """Return the rehearsal of a step's present call. Fill `discovered` if it includes the update.

    Leaves out an `after_update` with effects on Python state, or that cannot run on fake tensors.
    """
    python = step.python
    if python.pending is not None:
        return python.pending
    refuse_hooks(step.optimizer)

    def run(recorder: SignatureRecorder) -> tuple[Mapping[int, torch.Tensor], tuple[Any, ...]]:
        modules = _modules_of(step)
        call = CallInputs.of(args, kwargs)
        program = _StepProgram(step, modules, call)
        is_new = discovered is not None and step.part.last
        program.run_on_fakes(FakeInputs([*modules.local(), *call.tensors]), recorder, discovered if is_new else None)
        roots = [each for each in modules.modules if not isinstance(each, _Removed)]
        return program.given(), (modules.names, modules.trainable, roots, step.keeps_after_update)

    def attempt() -> Rehearsal:
        return python.rehearse(step.traced_functions(), run)

    if step.after_update is None or step.keeps_after_update or not step.part.last:
        return attempt()
    try:
        traced = attempt()
        if traced.is_pure:
            return traced
    except UnsupportedError:
        traced = None
    state = python.state
    step.keeps_after_update = True
    plain = attempt()
    if traced is None or not plain.effects.are_like(traced.effects):
        return plain
    step.keeps_after_update = False
    python.state, python.pending = state, traced
    return traced


@contextmanager
def _undone(state: PythonState) -> Generator[None]:
    try:
        yield
    finally:
        state.restore()


class _StepProgram:
    def __init__(self, step: TrainingStep, modules: ModuleTensors, call: CallInputs) -> None:
        self.step, self.modules, self.call = step, modules, call
        position = {id(tensor): index for index, tensor in enumerate(modules.live())}
        if any(id(parameter) not in position for parameter in step.parameters()):
            raise UnsupportedError(
                "the optimizer updates a tensor that is not a parameter of the model or its loss; if parameters were "
                "replaced, create the optimizer again"
            )
        self.updated = [position[id(parameter)] for parameter in step.parameters()]
        self.receiving: list[int] = []
        self.sources: list[torch.Tensor] = []
        self._clipping_order = step.model_order()

    def run_on_fakes(
        self, fakes: FakeInputs, recorder: SignatureRecorder, discovered: list[_Discovered] | None
    ) -> None:
        """Run the step without its update. Find the optimizer's state if `discovered` is given."""
        step = self.step

        def update(parameters: list[torch.Tensor]) -> None:
            if discovered is not None:
                recorder.is_paused = True
                state = discover_state(step.optimizer, parameters, step.spells_out_fused)
                discovered.append(_Discovered(state, list(self.receiving)))
                recorder.is_paused = False

        with fakes.rehearsal(), torch.enable_grad(), recorder:
            tensors = [fakes.empty(tensor) for tensor in fakes.tensors]
            for tensor, live in zip(tensors, [*self.modules.local(), *self.call.tensors], strict=True):
                recorder.number(tensor)
                if may_decide(live):
                    recorder.follow(tensor, live, may_change=live.numel() > 1)
            self.run(tensors, [], update if step.part.last or discovered is not None else None, None)

    def given(self) -> dict[int, torch.Tensor]:
        live = [*self.modules.live(), *self.call.tensors]
        return {id(source): own for source, own in zip(self.sources, live, strict=True)}

    def run(
        self,
        tensors: list[torch.Tensor],
        accumulated: list[torch.Tensor],
        update: Callable[[list[torch.Tensor]], None] | None,
        scaler: GradScaler | None,
    ) -> list[torch.Tensor]:
        """Run forward, backward and `update`. Return the loss, then the scaler's flag for infinite gradients.

        Without `update`, return the loss and gradients not added to `accumulated`.
        """
        trainable = {index for index in self.updated if self.modules.trainable[index]}
        sources = [t.detach().requires_grad_() if index in trainable else t for index, t in enumerate(tensors)]
        self.sources = sources
        own = len(self.modules.names)
        with self.modules.replaced_by(sources[:own]):
            args, kwargs = self.call.rebuild(sources[own:])
            loss = self.step.scalar_loss(*args, **kwargs)
            order = [index for index in self.updated if index in trainable]
            share = self.step.part.share_of(loss)
            scaled = share if scaler is None else scaler.scale(share)
            found: Any = torch.autograd.grad(scaled, [sources[index] for index in order], allow_unused=True)
            given = [(index, gradient) for index, gradient in zip(order, found, strict=True) if gradient is not None]
            self.receiving = [index for index, _ in given]
            self._keep_assigned(sources[:own])
            gradients = [gradient for _, gradient in given]
            if accumulated:
                with torch.no_grad():
                    gradients = [sum_.add_(new) for sum_, new in zip(accumulated, gradients, strict=True)]
            if update is None:
                owners = [sources[index] for index in self.receiving]
                return [loss.detach(), *([] if accumulated else _own_gradients(gradients, owners))]
            for index, gradient in zip(self.receiving, gradients, strict=True):
                sources[index].grad = gradient
            self._update([sources[index] for index in self.updated], update, scaler)
        flags = [] if scaler is None else [found_infinities(scaler, self.step.optimizer)]
        return [loss.detach(), *flags]

    def _keep_assigned(self, sources: Sequence[torch.Tensor]) -> None:
        """Copy tensors that the program assigned to buffers into the old ones.

        Raises UnsupportedError for a buffer of another form, and for an assigned parameter.
        """
        for source, now, (_, name) in zip(sources, self.modules.live(), self.modules.names, strict=True):
            new = local_part(now)
            if new is source or (source.requires_grad and is_distributed(now)):
                continue
            if source.requires_grad:
                raise UnsupportedError(f"the step assigns a new tensor to the parameter {name}; change it in place")
            if form_of(new) != form_of(source):
                raise UnsupportedError(f"the step assigns a tensor of another form to the buffer {name}; keep its form")
            with torch.no_grad():
                source.copy_(new)

    def _update(
        self, parameters: list[torch.Tensor], update: Callable[[list[torch.Tensor]], None], scaler: GradScaler | None
    ) -> None:
        step = self.step
        if step.before_update is not None:
            if scaler is not None:
                with swapped(step.optimizer, parameters, {}), torch.no_grad():
                    (unscale_by_plain_ops if step.spells_out_fused else GradScaler.unscale_)(scaler, step.optimizer)
            self._call_before_update(parameters)
        update(parameters)
        if step.after_update is not None and not step.keeps_after_update:
            with torch.no_grad():
                step.after_update(step.model)

    def _call_before_update(self, parameters: Sequence[torch.Tensor]) -> None:
        """Call `before_update`. Distributed parameters are DTensors there, so norms cover all ranks."""
        hook: Any = self.step.before_update
        live = self.step.parameters()
        parts = [traced_rows(part, own, place) for place, (part, own) in enumerate(zip(parameters, live, strict=True))]
        given = [distributed_twin(part, own) for part, own in zip(parts, live, strict=True)]
        hook([given[place] for place in self._clipping_order])
        for place, (part, own, twin) in enumerate(zip(parameters, live, given, strict=True)):
            if twin is not part:
                new = None if twin.grad is None else local_part(twin.grad)
                part.grad = None if new is None else padded_gradient(part, own, place, new)


def _loss_of(module: GraphModule) -> Node:
    (output,) = module.graph.find_nodes(op="output")
    detached = output.all_input_nodes[0]
    return detached.all_input_nodes[0]


def _own_gradients(gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    seen = {storage_key(parameter) for parameter in parameters}
    kept: list[torch.Tensor] = []
    for gradient, parameter in zip(gradients, parameters, strict=True):
        own = gradient
        fills = storage_bytes(gradient) == gradient.numel() * gradient.element_size()
        if gradient.stride() != parameter.stride() or not fills or storage_key(gradient) in seen:
            own = torch.empty_like(parameter).copy_(gradient)
        seen.add(storage_key(own))
        kept.append(own.detach())
    return kept


def _present_values(state: OptimizerState) -> list[torch.Tensor | None]:
    missing = [(entry.parameter, entry.key) for entry in state.missing()]
    firsts = dict(zip(missing, initial_values(state.optimizer, missing), strict=True))
    parameters = state.parameters()
    found: list[torch.Tensor | None] = []
    for position, key, form in state.entries:
        if (position, key) in firsts:
            first = firsts[position, key]
            if first is None or form.numel() > 1:
                found.append(None)
            else:
                found.append(torch.full(form.shape, first, dtype=form.dtype))
        else:
            found.append(part_of(state.optimizer.state[parameters[position]][key], parameters[position]))
    return [*found, *(state.optimizer.param_groups[group][key] for group, key in state.settings)]
