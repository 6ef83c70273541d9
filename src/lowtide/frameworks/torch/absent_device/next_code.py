"""Lines of Python that build a recipe's training step."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lowtide.frameworks.torch.absent_device.build import Program
from lowtide.frameworks.torch.absent_device.pretrained import Pretrained
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.training_steps import OptimizerName, Recipe

_OPTIMIZERS: dict[OptimizerName, Any] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "adafactor": torch.optim.Adafactor,
}
_AUTOCAST = "    with torch.autocast(device, torch.bfloat16):"


def code_of_pretrained(found: Pretrained, recipe: Recipe, device: str) -> list[str]:
    """Return lines that build `model`, `loss_function`, `optimizer` and `batch`."""
    lines = [f"import {found.imports}", f'device = "{device}"', *found.code]
    dtype = f"torch.{recipe.precision}"
    if recipe.precision in ("bfloat16", "float16"):
        lines.append(f"model = model.to({dtype})")
        if any(each.is_floating_point() for each in found.batch.values()):
            lines.append(f"batch = dict(batch, {_images(found)}={_images_value(found)}.to({dtype}))")
    if recipe.precision == "amp":
        lines += ["def loss_function(model, **batch):", _AUTOCAST, f"        return {found.loss}", ""]
    elif found.loss_function is None:
        lines.append("loss_function = None  # the model returns its loss")
    else:
        lines.append(f"loss_function = lambda model, **batch: {found.loss}")
    return [*lines, f"optimizer = {optimizer_code(recipe, device)}"]


def _images(found: Pretrained) -> str:
    return next(name for name, each in found.batch.items() if each.is_floating_point())


def _images_value(found: Pretrained) -> str:
    return f'batch["{_images(found)}"]'


def name_of_own(program: Program) -> str:
    return "model" if isinstance(program[0], nn.Module) else "made"


def code_of_own(program: Program, recipe: Recipe) -> tuple[list[str], tuple[str, ...]]:
    """Return lines that make the user's program, and arguments of `training_step`."""
    function: Any = program[0]
    lines: list[str] = []
    if recipe.kind == "callable":
        lines += [*_import_of(recipe.name), f"{name_of_own(program)}, batch = make()"]
    if isinstance(function, TrainingStep):
        return lines, ("made.model", "made.loss_function", "made.optimizer")
    if not isinstance(function, nn.Module):
        return lines, ()
    if recipe.precision == "amp":
        lines += [
            "def loss_function(model, *batch):",
            _AUTOCAST.replace("device", '"cuda"'),
            "        return model(*batch)",
            "",
        ]
        return [*lines, f"optimizer = {optimizer_code(recipe, 'cuda')}"], ("model", "loss_function", "optimizer")
    return [*lines, f"optimizer = {optimizer_code(recipe, 'cuda')}"], ("model", "None", "optimizer")


def options_of_own(function: Any) -> tuple[str, ...]:
    if not isinstance(function, TrainingStep):
        return ()
    given = {name: getattr(function, name) for name in ("before_update", "after_update", "grad_scaler")}
    named = [name for name, value in given.items() if value is not None]
    return tuple(f"{name}=made.{name}" for name in [*named, *["accumulate"] * (function.accumulate > 1)])


def optimizer_of(recipe: Recipe, device: str) -> tuple[Any, bool]:
    return _OPTIMIZERS[recipe.optimizer], device == "cuda" and recipe.optimizer != "adafactor"


def optimizer_code(recipe: Recipe, device: str) -> str:
    made, is_fused = optimizer_of(recipe, device)
    return f"torch.optim.{made.__name__}(model.parameters(){', fused=True' if is_fused else ''})"


def _import_of(name: str) -> list[str]:
    module, _, attribute = name.rpartition(":")
    lines = ["import lowtide, torch"]
    if module.endswith(".py"):
        path = Path(module)
        if path.parent != Path():
            lines.append(f"import sys; sys.path.insert(0, {str(path.parent)!r})")
        module = path.stem
    first, *rest = attribute.split(".")
    lines.append(f"from {module} import {first}")
    return lines if attribute == "make" else [*lines, f"make = {'.'.join([first, *rest])}"]
