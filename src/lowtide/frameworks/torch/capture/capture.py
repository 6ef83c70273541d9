"""Capture any PyTorch program."""

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule

from lowtide.core.collection import without_collection
from lowtide.core.errors import LowtideError, UnsupportedError, UsageError
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.call_inputs import CallInputs
from lowtide.frameworks.torch.capture.capture_function import capture_function
from lowtide.frameworks.torch.capture.step.capture_training_step import capture_training_step
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.capture.tracing import place_of
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.compiling import one_at_a_time
from lowtide.frameworks.torch.internals.fake_tensors import (
    FakeMode,
    failures_unlogged,
    new_fake_mode,
    outside_of_fake_modes,
)
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import make_values_fake
from lowtide.frameworks.torch.reading.captured import Binding, Captured, warn_of_math_attention
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import GIVEN


@one_at_a_time
def capture(program: Any) -> Captured:
    """Capture a PyTorch program as one aten graph. Nothing is allocated, and the user's objects stay unchanged.

    Other threads wait.

    A program is an ExportedProgram; a GraphModule with tensor metadata; (function or module, example inputs), with
    inputs as a tuple, a dict of keyword arguments or one tensor; (TrainingStep, example batch); or an earlier result of
    `capture`.

    Warns if attention on the device "meta" became plain products. Raises UnsupportedError if the program itself fails,
    and UnsupportedError or UsageError if it cannot be captured.
    """
    try:
        with outside_of_fake_modes(), failures_unlogged(), without_collection():
            captured = _capture(program)
        if captured is not program:
            warn_of_math_attention(captured.graph_module)
        return captured
    except LowtideError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        if found := _WITHOUT_RULE.search(lines[0]):
            raise UnsupportedError(
                f"the program calls torch's '{found[1]}'{place_of(error)}, whose inner functions cannot be captured; "
                "use plain operators, such as torch.where for a condition"
            ) from error
        failure = f"{type(error).__name__}{place_of(error)}"
        raise UnsupportedError(f"the program cannot be captured: {failure}: {lines[0]}") from error


_WITHOUT_RULE = re.compile(r"no rule registered for HigherOrderOperator (\w+)")


def _capture(program: Any) -> Captured:
    captured: object = getattr(program, "unmodified", program)  # that of a planned step
    if isinstance(captured, Captured):
        return captured
    if isinstance(program, ExportedProgram):
        args, kwargs = sample_inputs(program)
        return capture_function(program.module(), args, kwargs, backward=False)  # mutations stay mutations
    if isinstance(program, GraphModule):
        return capture_graph_module(program)
    if not _is_call(program):
        name = type(program).__name__
        missing = "has no example inputs" if isinstance(program, nn.Module) else "is not a PyTorch program"
        raise UnsupportedError(f"{name} {missing}; pass (function or module, example inputs)")
    function, inputs = program
    args, kwargs = _call_of(function, inputs)
    if isinstance(function, TrainingStep):
        return capture_training_step(function, args, kwargs)
    return capture_function(function, args, kwargs)


def _is_call(program: object) -> bool:
    parts = cast("Sequence[object]", program) if isinstance(program, tuple | list) else ()
    if len(parts) != 2:
        return False
    function, inputs = parts
    is_function = isinstance(function, TrainingStep | nn.Module) or callable(function)
    return is_function and isinstance(inputs, tuple | list | Mapping | torch.Tensor)


def _call_of(function: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    args: tuple[Any, ...] = (cast("object", inputs),) if isinstance(inputs, Mapping) else tuple(inputs)
    if len(args) == 1 and isinstance(args[0], Mapping):
        batch = cast("Mapping[str, Any]", args[0])
        if args[0] is inputs or (isinstance(function, nn.Module) and _accepts(function, batch)):
            return (), dict(batch)
    return args, {}


def _accepts(module: nn.Module, names: Mapping[Any, Any]) -> bool:
    return bool(names) and names.keys() <= inspect.signature(module.forward).parameters.keys()


def sample_inputs(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments to capture an exported program with.

    Without example inputs, these are fake tensors: enough to plan, not to run. Raises UnsupportedError for an input
    that is neither a tensor nor a plain value.
    """
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        return tuple(args), dict(kwargs)
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    mode = new_fake_mode()
    leaves = [
        given.arg.value
        if isinstance(given.arg, ConstantArgument)
        else _like(hinted_value_of(placeholders[given.arg.name]), given.arg.name, mode)
        for given in program.graph_signature.input_specs
        if given.kind == InputKind.USER_INPUT
    ]
    spec = program.call_spec.in_spec
    if spec is None:
        raise UnsupportedError("the exported program has no call signature; export it again")
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def _like(value: Any, name: str, mode: FakeMode) -> Any:
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        with mode:
            fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return fake.requires_grad_(value.requires_grad)
    if value is None or isinstance(value, int | float | bool | str):
        return value
    raise UnsupportedError(
        f"input {name!r} is neither a strided tensor nor a plain value; load sample inputs with --trust"
    )


def capture_graph_module(module: GraphModule) -> Captured:
    """Capture a graph of aten ops with fake or real tensors in `meta["val"]` of its nodes.

    Raises UnsupportedError for other ops, or an input without metadata.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    for node in module.graph.nodes:
        if node.op in ("call_module", "call_method"):
            raise UnsupportedError(f"node '{node.name}' is a {node.op}, not an aten op; pass (module, example inputs)")
        if node.op == "placeholder" and "val" not in node.meta:
            raise UnsupportedError(f"input '{node.name}' has no tensor metadata; pass (module, example inputs)")
    owned = GraphModule(module, copy.deepcopy(module.graph))
    make_values_fake(owned.graph)
    (output,) = module.graph.find_nodes(op="output")
    _, spec = pytree.tree_flatten(output.args[0])
    return Captured(
        name=type(module).__name__,
        graph_module=run_rewrites(owned, GIVEN),
        inputs=tuple((node.name, Lifetime.INPUT) for node in placeholders),
        binding=GraphModuleBinding(module, CallInputs.of(tuple(values), {}), spec),
        with_backward=False,
        example_args=tuple(values),
    )


@dataclass(frozen=True, eq=False)
class GraphModuleBinding(Binding):
    module: GraphModule
    call: CallInputs
    spec: pytree.TreeSpec

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        if kwargs:
            raise UsageError("a traced GraphModule takes positional arguments only")
        self.call.bind(args, {})
        return list(args)

    def finish(self, outputs: list[Any], sources: list[torch.Tensor]) -> Any:
        return pytree.tree_unflatten(outputs, self.spec)

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def persistent(self) -> list[torch.Tensor]:
        return []
