"""Models as people train them, with random weights; every module returns its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

CLASSES = 1000


@dataclass(frozen=True)
class TrainingModel:
    """How to make a model and its batch."""

    name: str
    make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


class WithLoss(nn.Module):
    """A model of images or tokens and the loss of its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean cross-entropy."""
        result: Any = self.model(inputs) if mask is None else self.model(inputs, attention_mask=mask)
        logits: torch.Tensor = getattr(result, "logits", result)
        if logits.dim() == 3:
            return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return functional.cross_entropy(logits, labels)


class ConvolutionTwice(nn.Sequential):
    """Two convolutions with their norms."""

    def __init__(self, n_in: int, n_out: int) -> None:
        layers: list[nn.Module] = []
        for n_from in (n_in, n_out):
            layers += [nn.Conv2d(n_from, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Four levels of convolutions down and up, joined by concatenation."""

    def __init__(self, width: int = 32, levels: int = 4, n_classes: int = 21) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(
            ConvolutionTwice(n_in, n_out) for n_in, n_out in zip([3, *widths], widths, strict=False)
        )
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * n_out, n_out, 2, stride=2) for n_out in widths[:-1])
        self.up = nn.ModuleList(ConvolutionTwice(2 * n_out, n_out) for n_out in widths[:-1])
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits per pixel."""
        skipped: list[torch.Tensor] = []
        value = images
        for level, block in enumerate(self.down):
            value = block(functional.max_pool2d(value, 2) if level else value)
            skipped.append(value)
        for level in reversed(range(len(self.up))):
            value = self.up[level](torch.cat([skipped[level], self.widen[level](value)], 1))
        return self.head(value)


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return torch.zeros(batch, length, dtype=torch.int64), torch.zeros(batch, length, dtype=torch.int64)


def _causal(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    """Return tokens with the mask made: a model that makes its own looks at values, which no trace can."""
    mask = torch.full((1, 1, length, length), torch.finfo(torch.float32).min).triu(1)
    return *_tokens(batch, length), mask


def _images(batch: int, size: int, *label_shape: int) -> tuple[torch.Tensor, ...]:
    return torch.zeros(batch, 3, size, size), torch.zeros(batch, *label_shape, dtype=torch.int64)


def _gpt2(attention: str) -> nn.Module:
    config = GPT2Config(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False, attn_implementation=attention)
    return WithLoss(GPT2LMHeadModel(config))


def _bert() -> nn.Module:
    return WithLoss(BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)))


def _resnet50() -> nn.Module:
    return WithLoss(ResNetForImageClassification(ResNetConfig(num_labels=CLASSES)))


def _vit() -> nn.Module:
    return WithLoss(ViTForImageClassification(ViTConfig(num_labels=CLASSES)))


MODELS = (
    TrainingModel("GPT-2 small, 8 x 512", lambda: (_gpt2("sdpa"), _causal(8, 512))),
    TrainingModel("GPT-2 small with plain attention, 8 x 512", lambda: (_gpt2("eager"), _causal(8, 512))),
    TrainingModel("BERT base, 8 x 128", lambda: (_bert(), _tokens(8, 128))),
    TrainingModel("ResNet-50, 16 x 224", lambda: (_resnet50(), _images(16, 224))),
    TrainingModel("U-Net, 4 x 256", lambda: (WithLoss(UNet()), _images(4, 256, 256, 256))),
    TrainingModel("ViT base, 16 x 224", lambda: (_vit(), _images(16, 224))),
)
"""Dropout is off: torch's plans with random ops run again are another program."""
