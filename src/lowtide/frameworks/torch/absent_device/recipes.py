"""Build and read training steps without weights, at given sizes."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.absent_device.build import last_call, named_program, sent_program
from lowtide.frameworks.torch.absent_device.next_code import (
    code_of_own,
    code_of_pretrained,
    name_of_own,
    optimizer_of,
    options_of_own,
)
from lowtide.frameworks.torch.absent_device.pretrained import of_config, of_id
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.training_steps import PrecisionName, Read, Recipe, Step

_DTYPES: dict[PrecisionName, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def read_step(request: Read, mode: FakeMode) -> tuple[Step, TorchModel] | None:
    """Build and read a request's program; None for another framework. Raises UsageError, UnsupportedError."""
    if request.recipe.kind in ("config", "id"):
        return _read_pretrained(request, mode)
    return _read_own(request, mode)


def _read_pretrained(request: Read, mode: FakeMode) -> tuple[Step, TorchModel]:
    recipe, device = request.recipe, "meta" if request.device is None else "cuda"
    make = of_config if recipe.kind == "config" else of_id
    if recipe.precision == "amp" and request.device is None:
        raise UsageError('autocast of mps is not supported here; choose the precision "bfloat16" or "float32"')
    with nullcontext() if request.device is None else mode, torch.device(device):
        found = make(recipe.name, request.batch or 1, request.sequence)
        model = found.model.to(device=device, dtype=_DTYPES.get(recipe.precision)).train()
        batch = _in_precision(found.batch, recipe.precision)
        step = _step_of(model, found.loss_function, recipe, device)
    read = TorchModel((step, batch))
    described = Step(
        graph=read.graph,
        batch=request.batch or 1,
        sequence=found.sequence,
        longest=found.longest,
        settings=f"{recipe.optimizer}, {recipe.precision}",
        code=code_of_pretrained(found, recipe, "mps" if request.device is None else "cuda"),
        parts=("model", "loss_function", "optimizer"),
        call="**batch",
    )
    return described, read


def _read_own(request: Read, mode: FakeMode) -> tuple[Step, TorchModel] | None:
    recipe = request.recipe
    if request.sequence is not None:
        raise UsageError("the program chooses its own inputs; leave out the sequence length")
    if request.device is None:
        raise UsageError("for mps, give a config.json or the id of a model; other programs are read for CUDA")
    is_named = recipe.kind == "callable"
    made = named_program(recipe.name, mode) if is_named else sent_program(recipe.content, recipe.main, mode)
    function, inputs = made
    if not isinstance(function, nn.Module | TrainingStep) and not pytree.tensors_in(inputs):
        return None
    is_module = isinstance(function, nn.Module)
    if not is_module and (recipe.optimizer, recipe.precision) != ("adamw", "float32"):
        raise UsageError("the program has an optimizer and a precision of its own; leave out those options")
    if is_module and recipe.precision not in ("float32", "amp"):
        raise UsageError("convert the model to the precision that it trains in, and leave out that option")
    code, parts = code_of_own(made, recipe)
    given = "" if is_named else name_of_own(made)
    if is_module:
        with mode:
            function = _step_of(function, None, recipe, "cuda")
    own = _common_size(pytree.tensors_in(inputs))
    if request.batch is not None and own is not None and request.batch != own:
        inputs = _with_batch(inputs, request.batch, mode)
    settings = f"{recipe.optimizer}, {recipe.precision}" if is_module else ""
    calls = last_call(function)
    if calls > 1:
        settings = f"the last of {calls} calls, with the gradients of the others"
    read = TorchModel((function, inputs))
    described = Step(
        graph=read.graph,
        batch=None if own is None else request.batch or own,
        sequence=None,
        longest=None,
        settings=settings,
        code=code,
        parts=parts,
        options=options_of_own(function),
        given=given,
        call="**batch" if isinstance(inputs, Mapping) else "batch" if isinstance(inputs, torch.Tensor) else "*batch",
        moves_parameters=bool(read.captured.binding.movable()),
    )
    return described, read


def _step_of(model: nn.Module, loss_function: Any, recipe: Recipe, device: str) -> TrainingStep:
    make, is_fused = optimizer_of(recipe, device)
    parameters = [each for each in model.parameters() if each.requires_grad]
    update = make(parameters, lr=1e-3, **({"fused": True} if is_fused else {}))
    plain = TrainingStep(model, loss_function, update)
    return TrainingStep(model, _InAutocast(plain), update) if recipe.precision == "amp" else plain


@dataclass(frozen=True)
class _InAutocast:
    step: TrainingStep

    def __call__(self, _model: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return self.step.scalar_loss(*args, **kwargs)


def _in_precision(batch: dict[str, torch.Tensor], precision: PrecisionName) -> dict[str, torch.Tensor]:
    dtype = _DTYPES.get(precision)
    if dtype is None:
        return batch
    return {name: each.to(dtype) if each.is_floating_point() else each for name, each in batch.items()}


def _common_size(tensors: Sequence[torch.Tensor]) -> int | None:
    sizes = {each.shape[0] if each.dim() else None for each in tensors}
    return sizes.pop() if len(sizes) == 1 else None


def _with_batch(inputs: Any, size: int, mode: FakeMode) -> Any:
    def resized(tensor: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty((size, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)

    return pytree.tree_map_only(torch.Tensor, resized, inputs)
