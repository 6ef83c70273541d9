"""Capture a function or module on example inputs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from lowtide.core.errors import UnsupportedError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.module_tensors import ModuleTensors, check_modes, modes_of, modules_of
from lowtide.frameworks.torch.capture.tracing import FakeInputs, dry_run, trace
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fully_sharded import reshard
from lowtide.frameworks.torch.internals.padded_parts import as_owned, part_of
from lowtide.frameworks.torch.reading.captured import Binding, Captured


def capture_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, backward: bool | None = None
) -> Captured:
    """Capture a function of tensors, with the modules it is or closes over.

    If its first output is a floating-point scalar that requires grad, the graph also returns the gradients of all
    parameters and leaf inputs that require grad. Otherwise, or with `backward=False`, it holds the forward pass only.
    """
    modules = ModuleTensors.of(modules_of(function))
    call = CallInputs.of(args, kwargs)
    fakes = FakeInputs([*modules.local(), *call.tensors])
    trainable = [*modules.trainable, *(tensor.is_leaf and tensor.requires_grad for tensor in call.tensors)]
    result = _Result()

    def flat(tensors: list[torch.Tensor]) -> list[Any]:
        sources = [
            tensor.detach().requires_grad_() if wanted else tensor
            for tensor, wanted in zip(tensors, trainable, strict=True)
        ]
        held = len(modules.names)
        result.gradients = []
        with modules.replaced_by(sources[:held]):  # also around the backward pass, which recomputes checkpointed parts
            inner_args, inner_kwargs = call.rebuild(sources[held:])
            outputs, result.spec = pytree.tree_flatten(function(*inner_args, **inner_kwargs))
            _check_results(outputs)
            wanted = [position for position, chosen in enumerate(trainable) if chosen]
            if wanted and backward is not False and outputs and _is_loss(outputs[0]):
                found: Any = torch.autograd.grad(outputs[0], [sources[place] for place in wanted], allow_unused=True)
                kept = {place: gradient for place, gradient in zip(wanted, found, strict=True) if gradient is not None}
                result.gradients = list(kept)
                outputs = [*outputs, *kept.values()]
        return [output.detach() if isinstance(output, torch.Tensor) else output for output in outputs]

    with torch.enable_grad():
        dry_run(flat, fakes)
    with torch.set_grad_enabled(bool(result.gradients)):
        graph_module = trace(flat, fakes)
    binding = FunctionBinding(function, modules, call, tuple(result.gradients), result.spec, modes_of(modules.modules))
    held = [(name, Lifetime.PERSISTENT) for name in modules.labels()]
    return Captured(
        name=_name_of(function),
        graph_module=graph_module,
        inputs=(*held, *((name, Lifetime.INPUT) for name in call.names)),
        binding=binding,
        with_backward=bool(result.gradients),
        example_args=tuple(args),
        example_kwargs=dict(kwargs),
    )


class _Result:
    gradients: list[int]
    spec: Any


def _check_results(outputs: Sequence[object]) -> None:
    for output in outputs:
        if not pytree.is_plain(output):
            kind = type(output).__name__
            advice = "pass use_cache=False" if kind.endswith("Cache") else "return tensors"
            raise UnsupportedError(f"the program returns an object of class {kind}, which may hold tensors; {advice}")


def _is_loss(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.requires_grad and value.dim() == 0 and value.dtype.is_floating_point
    )


def _name_of(function: Callable[..., Any]) -> str:
    if isinstance(function, nn.Module):
        return type(function).__name__
    return getattr(function, "__name__", type(function).__name__)


@dataclass(frozen=True, eq=False)
class FunctionBinding(Binding):
    """Feeds a captured function. Adds gradients to `.grad`, like `backward`."""

    function: Callable[..., Any]
    modules: ModuleTensors
    call: CallInputs
    gradient_places: tuple[int, ...]
    """Inputs with gradients, which follow the function's own outputs."""
    spec: pytree.TreeSpec
    modes: tuple[bool, ...]
    parameters_on_host: Mapping[int, torch.device] = field(default_factory=dict[int, torch.device])
    """Positions of the modules' tensors on the host, with their device."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        check_modes(self.modules.modules, self.modes)
        reshard(self.modules.modules)
        inputs = self.call.bind(args, kwargs)
        self.modules.put_on_host(self.parameters_on_host)
        return [*self.modules.local(), *inputs]

    def movable(self) -> list[torch.Tensor]:
        """Return the modules' tensors; none if they get gradients, which are on the device."""
        return [] if self.gradient_places else self.modules.live()

    def with_on_host(self, homes: Mapping[int, torch.device], state: Collection[int] = ()) -> "FunctionBinding":
        return replace(self, parameters_on_host=homes)

    def finish(self, outputs: list[Any], sources: list[torch.Tensor]) -> Any:
        own = len(outputs) - len(self.gradient_places)
        owners = [*self.modules.live(), *sources[len(self.modules.names) :]]
        for position, part in zip(self.gradient_places, outputs[own:], strict=True):
            source = owners[position]
            gradient = as_owned(part, source)
            if source.grad is None:
                source.grad = gradient
            else:
                source.grad += gradient
        return pytree.tree_unflatten(outputs[:own], self.spec)

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self.modules.put_on_host({})
        if not self.gradient_places:
            with torch.no_grad():
                return self.function(*args, **kwargs)
        outputs, spec = pytree.tree_flatten(self.function(*args, **kwargs))
        torch.autograd.backward(outputs[0])
        detached = [output.detach() if isinstance(output, torch.Tensor) else output for output in outputs]
        return pytree.tree_unflatten(detached, spec)

    def persistent(self) -> list[torch.Tensor]:
        return self.modules.local()

    def gradients(self) -> list[torch.Tensor | None]:
        sources = [*self.modules.live(), *self.call.tensors]
        owners = [sources[position] for position in self.gradient_places]
        return [None if owner.grad is None else part_of(owner.grad, owner) for owner in owners]
