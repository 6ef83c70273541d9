"""Names of models that `fits` builds without weights, and messages on others."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lowtide.core.errors import UsageError, named_type
from lowtide.core.named_callable import is_callable_name, without_function
from lowtide.frameworks.content import SAVED_MODEL, kind_of_file
from lowtide.frameworks.table import framework_of, framework_of_file
from lowtide.frameworks.training_steps import STEP_AND_BATCH, Recipe

_LARGEST_CONFIG = 2**20
"""In bytes."""
_WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".gguf", ".npz", ".h5")
_INSTEAD = "give its config.json, or train.py:function that returns (lowtide.torch.TrainingStep, batch)"
_IN_A_NOTEBOOK = (
    'lowtide.fits("train.py:step", device=...) in it, after a cell that begins with %%writefile train.py and defines '
    f"step(), which returns {STEP_AND_BATCH}"
)
_RETURNED = f"{STEP_AND_BATCH}, or (model, batch) with a model that returns its loss"
_READ_AS_THEY_ARE = (".json", ".json.gz", ".pickle", ".pt2")
_CONFIG = "config.json"


def recipe_of(source: Any) -> Recipe | None:
    """Return how to build the training step that a source names; None for a program read as is.

    Raises UsageError for weights, a state dict, a URL, a notebook, or a script without function.
    """
    refuse_state_dict(source)
    if isinstance(source, str | Path):
        return _named(str(source))
    if isinstance(source, tuple):
        return _sent(cast("tuple[Any, ...]", source))
    framework = framework_of(source)
    if framework is not None and framework.name == "torch" and _is_module(source):
        raise UsageError(f"{named_type(source)} needs example inputs; give the model followed by a batch")
    return None


def _named(name: str) -> Recipe | None:
    if is_callable_name(name):
        return Recipe(kind="callable", name=name)
    path = Path(name)
    refuse_file(name, _IN_A_NOTEBOOK, _INSTEAD)
    if path.is_dir():
        if (path / _CONFIG).is_file():
            return Recipe(kind="config", name=name)
        if (path / SAVED_MODEL).is_file() or framework_of_file(name, kind_of_file(name)) is not None:
            return None
        raise UsageError(f"folder {name!r} has no {_CONFIG}; give the folder of a model, or train.py:function")
    if path.is_file():
        return Recipe(kind="config", name=name) if path.suffix == ".json" and is_config(path) else None
    if name.lower().endswith(_READ_AS_THEY_ARE) or framework_of_file(name, None) is not None:
        return None
    return Recipe(kind="id", name=name)


def refuse_file(name: str, call: str, instead: str) -> None:
    """Raise UsageError for common mistakes, with `call` in the message for notebooks, `instead` in others."""
    suffix = Path(name).suffix.lower()
    if "://" in name:
        raise UsageError(f"{name!r} is a URL; download the model, then {instead}")
    if suffix == ".ipynb":
        raise UsageError(f"{name!r} is a notebook; call {call}")
    if suffix == ".py":
        raise UsageError(without_function(name, _RETURNED))
    if suffix in _WEIGHTS and (suffix not in (".pt", ".bin") or kind_of_file(name) is None):
        raise UsageError(f"{name!r} has weights and no program; {instead}")


def is_config(path: Path) -> bool:
    """Return whether a JSON file is a configuration of Hugging Face."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_CONFIG:
            return False
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool({"model_type", "architectures"} & found.keys())


def _sent(source: tuple[Any, ...]) -> Recipe | None:
    """Return the recipe of PyTorch's (function, module or TrainingStep, inputs); None for another framework's."""
    if len(source) != 2 or not any(_of_torch(each) for each in source):
        return None
    from lowtide.frameworks.torch.absent_device.forms import pickled_forms

    content, main = pickled_forms(source)
    return Recipe(kind="sent", content=content, main=main)


def _of_torch(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_of_torch, cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, tuple | list):
        return any(map(_of_torch, cast("tuple[Any, ...]", value)))
    return any(base.__module__.partition(".")[0] == "torch" for base in type(value).__mro__) or (
        type(value).__name__ == "TrainingStep"
    )


def refuse_state_dict(source: Any) -> None:
    """Raise UsageError for a mapping with arrays."""
    values = cast("Mapping[Any, Any]", source).values() if isinstance(source, Mapping) else ()
    if any(hasattr(each, "shape") and hasattr(each, "dtype") for each in values):
        raise UsageError("a state dict has weights and no program; give the model followed by an example batch")


def with_inputs(program: Any, inputs: tuple[Any, ...]) -> Any:
    """Return a program and its inputs as one source; for a module or step, a tuple as batch is taken apart."""
    is_batch = len(inputs) == 1 and isinstance(inputs[0], tuple)
    if is_batch and (_is_module(program) or type(program).__name__ == "TrainingStep"):
        return program, inputs[0]
    return (program, inputs) if inputs else program


def _is_module(source: Any) -> bool:
    names = (f"{base.__module__}.{base.__name__}" for base in type(source).__mro__)
    return "torch.nn.modules.module.Module" in names
