"""Models of Hugging Face and timm without weights, with batches."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.core.named_callable import run_foreign
from lowtide.frameworks.torch.internals.fake_tensors import outside_of_fake_modes
from lowtide.frameworks.training_steps import require_transformers

_USUAL_TOKENS = 1024
_TOKEN_LABELS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForTokenClassification", "ForConditionalGeneration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    model: nn.Module
    loss_function: Callable[..., Tensor] | None
    batch: dict[str, Tensor]
    sequence: int | None
    longest: int | None
    imports: str
    code: Sequence[str]
    loss: str


def of_id(name: str, batch: int, sequence: int | None) -> Pretrained:
    """Return the model of an id in Hugging Face's local cache, or of a timm name. Raises UsageError."""
    if find_spec("transformers") is not None and _is_cached(name):
        return of_config(name, batch, sequence)
    if find_spec("timm") is not None:
        timm: Any = run_foreign("import of timm", lambda: importlib.import_module("timm"))
        if timm.is_model(name):
            return _of_timm(timm, name, batch, sequence)
    raise UsageError(
        f"no file {name!r}, and no model of this name in the local cache of Hugging Face or in timm; give a "
        "config.json, a folder with one, or train.py:function"
    )


def of_config(name: str, batch: int, sequence: int | None) -> Pretrained:
    """Return the model of a `config.json`, its folder, or an id in Hugging Face's local cache."""
    require_transformers(name)
    transformers: Any = importlib.import_module("transformers")
    config = _config(name)
    class_name = _class_of(transformers, config, name)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    model = run_foreign(f"{class_name}(config)", lambda: getattr(transformers, class_name)(config))
    longest = _longest(config)
    given, tokens, lines = _batch_of(config, class_name, batch, sequence, longest)
    code = [
        f"config = transformers.AutoConfig.from_pretrained({name!r})",
        *(["config.use_cache = False"] if hasattr(config, "use_cache") else []),
        f"model = transformers.{class_name}(config).to(device).train()",
        *lines,
    ]
    return Pretrained(
        model=model,
        loss_function=None,
        batch=given,
        sequence=tokens,
        longest=longest,
        imports="lowtide, torch, transformers",
        code=code,
        loss="model(**batch).loss",
    )


def _of_timm(timm: Any, name: str, batch: int, sequence: int | None) -> Pretrained:
    if sequence is not None:
        raise UsageError(f"{name} classifies images; leave out the sequence length")
    device = torch.get_default_device()
    with outside_of_fake_modes(), torch.device("meta"):  # models read numbers from real tensors while they are built
        model = run_foreign(f"timm.create_model({name!r})", lambda: timm.create_model(name))
    model = model.to_empty(device=device)
    shape = (batch, *model.default_cfg["input_size"])
    code = [
        f"model = timm.create_model({name!r}).to(device).train()",
        f"images = torch.randn({shape}, device=device)",
        f"batch = dict(x=images, y=torch.zeros({batch}, dtype=torch.long, device=device))",
    ]
    return Pretrained(
        model=model,
        loss_function=_cross_entropy,
        batch={"x": torch.zeros(shape), "y": torch.zeros(batch, dtype=torch.long)},
        sequence=None,
        longest=None,
        imports="lowtide, timm, torch",
        code=code,
        loss='torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])',
    )


def _cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def _is_cached(name: str) -> bool:
    try:
        _config(name)
    except UsageError:
        return False
    return True


def _config(name: str) -> Any:
    transformers: Any = importlib.import_module("transformers")
    read = transformers.AutoConfig.from_pretrained
    return run_foreign(f"reading the configuration of {name!r}", lambda: read(name, local_files_only=True))


def _class_of(transformers: Any, config: Any, name: str) -> str:
    """Return the class with a loss; base models get their pretraining head."""
    named = next(iter(config.architectures or ()), "")
    if named.endswith((*_TOKEN_LABELS, "ForSequenceClassification", "ForImageClassification")):
        return named
    tables: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    for table in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION"):
        names: Any = getattr(tables, f"MODEL_FOR_{table}_MAPPING_NAMES")
        found = names.get(config.model_type)
        if found is not None:
            return found if isinstance(found, str) else found[0]
    raise UnsupportedError(
        f"{name} is a {config.model_type} model, whose loss lowtide does not know; give train.py:function, which "
        "returns (lowtide.torch.TrainingStep, batch)"
    )


def _longest(config: Any) -> int | None:
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)


def _batch_of(
    config: Any, class_name: str, batch: int, sequence: int | None, longest: int | None
) -> tuple[dict[str, Tensor], int | None, list[str]]:
    if class_name.endswith("ForImageClassification"):
        if sequence is not None:
            raise UsageError(f"{class_name} has no sequences; leave out the sequence length")
        size = getattr(config, "image_size", None) or 224
        high, wide = (size, size) if isinstance(size, int) else size
        shape = batch, getattr(config, "num_channels", 3), high, wide
        lines = [
            f"images = torch.randn({shape}, device=device)",
            f"batch = dict(pixel_values=images, labels=torch.zeros({batch}, dtype=torch.long, device=device))",
        ]
        return {"pixel_values": torch.zeros(shape), "labels": torch.zeros(batch, dtype=torch.long)}, None, lines
    tokens = sequence or min(longest or _USUAL_TOKENS, _USUAL_TOKENS)
    if longest is not None and tokens > longest:
        raise UsageError(f"{class_name} accepts at most {longest} tokens per row, not {tokens}")
    rows = torch.zeros((batch, tokens), dtype=torch.long)
    per_row = class_name.endswith("ForSequenceClassification")
    labels = f"torch.zeros({batch}, dtype=torch.long, device=device)" if per_row else "tokens"
    if class_name.endswith("ForTokenClassification"):
        labels = "torch.zeros_like(tokens)"
    lines = [
        f"tokens = torch.randint(config.vocab_size, ({batch}, {tokens}), device=device)",
        f"batch = dict(input_ids=tokens, labels={labels})",
    ]
    return {"input_ids": rows, "labels": rows[:, 0] if per_row else rows}, tokens, lines
