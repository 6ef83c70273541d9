"""Capturing a whole training step as one graph: the update of a parameter is ready when its gradient is."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.module_tensors import ModuleTensors, modes_of, modules_of
from lowtide.frameworks.torch.capture.step.decisions import AnyScalar, ScalarValues
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
from lowtide.frameworks.torch.internals.distributed_tensors import local_part
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.grad_scaler import found_infinities, scaling_by, unscale_spelled_out
from lowtide.frameworks.torch.internals.symbolic_scalars import new_scalar, silent_branches, symbol_name
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.out_of_place import write_out_of_place


def capture_training_step(step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    """Capture a training step on a batch; the optimizer is the user's own, working on stand-ins while it is traced.

    Learning rates, momenta, betas and weight decays that are floats become inputs of the graph; branches on them and on
    state of one element are taken as they would be now, and checked in every call.
    Raises UnsupportedError for an optimizer whose step is no fixed program, UsageError for a loss that is no scalar.
    """
    refuse_hooks(step.optimizer)
    scaler = step.grad_scaler
    if scaler is not None and not step.spells_out_fused:
        refuse_unless_fused(step.optimizer)
    roots = (step.model, step.loss_function, step.before_update, step.after_update)
    modules = ModuleTensors.of(modules_of(*roots))
    call = CallInputs.of(args, kwargs)
    live, parts = modules.live(), modules.local()
    part = step.part
    position = {id(tensor): index for index, tensor in enumerate(live)}
    updated: list[int] = []
    for parameter in step.parameters():
        if id(parameter) not in position:
            raise UnsupportedError(
                "the optimizer updates a tensor that is no parameter of the model or its loss; make the optimizer anew "
                "where parameters were replaced since"
            )
        updated.append(position[id(parameter)])
    fakes = FakeInputs([*parts, *call.tensors])
    clipped = step.model_order()

    receiving: list[int] = []

    def run(
        tensors: list[torch.Tensor],
        accumulated: list[torch.Tensor],
        update: Callable[[list[torch.Tensor]], object] | None,
        scaler: GradScaler | None,
    ) -> list[torch.Tensor]:
        """Run forward and backward, then an update of the optimizer's parameters, which hold their gradients.

        Without an update, returns the gradients beside the loss, unless they were added to those accumulated.
        """
        trainable = {index for index in updated if modules.trainable[index]}
        sources = [t.detach().requires_grad_() if index in trainable else t for index, t in enumerate(tensors)]
        with modules.replaced_by(sources[: len(live)]):
            inner_args, inner_kwargs = call.rebuild(sources[len(live) :])
            loss: Any = step.loss(*inner_args, **inner_kwargs)
            if not (isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad):
                raise UsageError("the loss of a training step must be a scalar tensor that requires grad")
            order = [index for index in updated if index in trainable]
            wanted = [sources[index] for index in order]
            share = part.share_of(loss)
            scaled = share if scaler is None else scaler.scale(share)
            found: Any = torch.autograd.grad(scaled, wanted, allow_unused=True)
            given = [(index, gradient) for index, gradient in zip(order, found, strict=True) if gradient is not None]
            receiving[:] = [index for index, _ in given]
            gradients = [gradient for _, gradient in given]
            if accumulated:
                with torch.no_grad():
                    gradients = [sum_.add_(new) for sum_, new in zip(accumulated, gradients, strict=True)]
            if update is None:
                kept = [] if accumulated else _kept_gradients(gradients, [sources[index] for index in receiving])
                return [loss.detach(), *kept]
            for index, gradient in zip(receiving, gradients, strict=True):
                sources[index].grad = gradient
            parameters = [sources[index] for index in updated]
            if step.before_update is not None:
                if scaler is not None:
                    with swapped(step.optimizer, parameters, {}), torch.no_grad():
                        (unscale_spelled_out if step.spells_out_fused else GradScaler.unscale_)(scaler, step.optimizer)
                step.before_update([parameters[place] for place in clipped])
            update(parameters)
            if step.after_update is not None:
                with torch.no_grad():
                    step.after_update(step.model)
        flags = [] if scaler is None else [found_infinities(scaler, step.optimizer)]
        return [loss.detach(), *flags]

    with fakes.rehearsal(), torch.enable_grad(), AnyScalar():
        found: list[OptimizerState] = []
        run(
            [fakes.empty(t) for t in fakes.tensors],
            [],
            lambda given: found.append(discover_state(step.optimizer, given, step.spells_out_fused)),
            None,
        )
        (state,) = found
    received = [] if part.first else list(receiving)
    state_forms = [entry.form for entry in state.entries]
    state_forms += [fakes.mode.from_tensor(step.optimizer.param_groups[group][key]) for group, key in state.settings]
    held = len(live) + len(state_forms)
    shape_env: Any = fakes.mode.shape_env
    names = [entry.label for entry in state.scalars.entries]
    values = state.scalars.live(step.optimizer)
    scalars = [new_scalar(shape_env, name, float(value)) for name, value in zip(names, values, strict=True)]
    gradient_forms = [fakes.tensors[index] for index in received]
    scale_forms = [] if scaler is None else [fakes.mode.from_tensor(torch.ones(()))]
    inputs = fakes.extended_by([*state_forms, *gradient_forms, *scale_forms], before=len(live), scalars=scalars)
    known = [*parts, *_present_values(state)]
    calls, followed = UpdateCalls(), ScalarValues(shape_env)

    def flat(given: list[Any]) -> list[Any]:
        tensors, symbols = given[: len(inputs.tensors)], given[len(inputs.tensors) :]
        for position, (traced, value) in enumerate(zip(tensors[:held], known, strict=True)):
            if value is not None and value.numel() == 1 and not is_fake(value):
                followed.follow(traced, value, position)

        def update(parameters: list[torch.Tensor]) -> None:
            with state.replaced_by(parameters, tensors[len(live) : held], symbols), calls:
                if scaler is None:
                    raw_step(step.optimizer)
                else:
                    (scaled_step_spelled_out if step.spells_out_fused else scaled_step)(scaler, step.optimizer)

        accumulated = tensors[held : held + len(received)]
        rest = tensors[held + len(received) + len(scale_forms) :]
        with ExitStack() as stack:
            if scaler is not None:
                stack.enter_context(scaling_by(scaler, tensors[held + len(received)]))
            stack.enter_context(followed)
            return run([*tensors[: len(live)], *rest], accumulated, update if part.last else None, scaler)

    def connect(graph: Graph) -> None:
        placeholders = graph.find_nodes(op="placeholder")[len(inputs.tensors) :]
        calls.connect(graph, dict(zip(map(symbol_name, scalars), placeholders, strict=True)))

    with ExitStack() as stack:
        for context in (torch.enable_grad(), symbolic_choices(step.optimizer), silent_branches()):
            stack.enter_context(context)
        graph_module = trace(flat, inputs, connect)
    binding = TrainingStepBinding(
        step,
        modules,
        call,
        state,
        forms=tuple(map(form_of, inputs.tensors[:held])),
        part=part,
        updated=tuple(updated),
        received=tuple(updated.index(index) for index in receiving),
        modes=modes_of(modules.modules),
        settings=state.fixed_settings(),
        symbols=tuple(map(symbol_name, scalars)),
        decisions=followed.decisions(),
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


def _loss_of(module: GraphModule) -> Node:
    """Return the node of the loss, of which the graph returns an alias made after the update."""
    (output,) = module.graph.find_nodes(op="output")
    detached = output.all_input_nodes[0]
    return detached.all_input_nodes[0]


def _kept_gradients(gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients as autograd would leave them: each in a storage of its own, with its parameter's strides."""
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
    """Return the optimizer's tensors as they are, small ones not made yet as they will be made, None for others."""
    missing = [(entry.parameter, entry.key) for entry in state.missing()]
    numbers = dict(zip(missing, initial_values(state.optimizer, missing), strict=True))
    parameters = state.parameters()
    found: list[torch.Tensor | None] = []
    for position, key, form in state.entries:
        if (position, key) in numbers:
            is_small = form.numel() == 1
            found.append(torch.full(form.shape, numbers[position, key], dtype=form.dtype) if is_small else None)
        else:
            found.append(local_part(state.optimizer.state[parameters[position]][key]))
    return [*found, *(state.optimizer.param_groups[group][key] for group, key in state.settings)]
