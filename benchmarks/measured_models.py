"""Models that are trained for real while they are measured, dropout on where they have it; sizes by device."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from training_models import CLASSES, UNet, WithLoss
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Size:
    """How much of a model is run."""

    width: int
    layers: int
    vocabulary: int
    sequences: int
    length: int
    images: int
    pixels: int

    @property
    def heads(self) -> int:
        """Attention heads of 64 features, as in the published models."""
        return self.width // 64


NARROW = Size(width=256, layers=4, vocabulary=4096, sequences=4, length=128, images=16, pixels=96)
"""Narrower and shallower, so that a step takes about a second on two cores and is not all gradients."""


@dataclass(frozen=True)
class MeasuredModel:
    """How to make a model that returns its loss, and a batch for it."""

    name: str
    make: Callable[[Size], tuple[nn.Module, Batch]]
    blocks: str | None
    """Path of the list of repeated blocks, for plain checkpointing; None where there is none."""

    def block_list(self, module: nn.Module) -> list[nn.Module]:
        """Return the repeated blocks of a model made here."""
        return [] if self.blocks is None else list(module.get_submodule(self.blocks).children())


class DenoisingLoss(nn.Module):
    """A diffusion U-Net and the squared error of the noise it predicts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, times: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error."""
        return functional.mse_loss(self.model(images, times, return_dict=False)[0], noise)


class Experts(nn.Module):
    """A feed-forward layer of several experts, each token to the best one, a fixed number of tokens to each expert."""

    def __init__(self, width: int, n_experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, n_experts)
        self.widen = nn.Parameter(torch.randn(n_experts, width, 2 * width) * width**-0.5)
        self.narrow = nn.Parameter(torch.randn(n_experts, 2 * width, width) * (2 * width) ** -0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the experts make of (sequences, length, width); a token that finds its expert full gets zeros."""
        flat = tokens.flatten(0, 1)
        weights = self.router(flat).softmax(-1)
        weight, expert = weights.max(-1)
        chosen = functional.one_hot(expert, weights.shape[1])
        place = chosen.cumsum(0).mul(chosen).sum(-1) - 1
        capacity = 2 * flat.shape[0] // weights.shape[1]
        slots = functional.one_hot(place.clamp(max=capacity), capacity + 1)[:, :-1]
        dispatch = (chosen.unsqueeze(-1) * slots.unsqueeze(1)).to(flat.dtype)
        given = torch.einsum("tec,tw->ecw", dispatch, flat)
        made = torch.bmm(functional.gelu(torch.bmm(given, self.widen)), self.narrow)
        return torch.einsum("tec,ecw->tw", dispatch * weight[:, None, None], made).view_as(tokens)


class ExpertsLayer(nn.Module):
    """A transformer layer whose feed-forward part is a mixture of experts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.experts = Experts(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        normed = self.norms[0](tokens)
        tokens = tokens + self.dropout(self.attention(normed, normed, normed, need_weights=False)[0])
        return tokens + self.dropout(self.experts(self.norms[1](tokens)))


class MixtureOfExperts(nn.Sequential):
    """Embedding, layers, head."""

    def __init__(self, size: Size) -> None:
        layers = nn.Sequential(*(ExpertsLayer(size.width, size.heads) for _ in range(size.layers)))
        super().__init__(
            nn.Embedding(size.vocabulary, size.width), layers, nn.Linear(size.width, size.vocabulary, bias=False)
        )


def _tokens(size: Size) -> Batch:
    shape = (size.sequences, size.length)
    return torch.randint(0, size.vocabulary, shape), torch.randint(0, size.vocabulary, shape)


def _images(size: Size) -> Batch:
    return torch.randn(size.images, 3, size.pixels, size.pixels), torch.randint(0, CLASSES, (size.images,))


def _gpt2(size: Size) -> tuple[nn.Module, Batch]:
    config = GPT2Config(
        n_layer=size.layers, n_embd=size.width, n_head=size.heads, vocab_size=size.vocabulary, use_cache=False
    )
    return WithLoss(GPT2LMHeadModel(config)), _tokens(size)


def _llama(size: Size) -> tuple[nn.Module, Batch]:
    config = LlamaConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=8 * size.width // 3,
        num_attention_heads=size.heads,
        num_key_value_heads=max(1, size.heads // 2),
        vocab_size=size.vocabulary,
        attention_dropout=0.1,
        use_cache=False,
    )
    return WithLoss(LlamaForCausalLM(config)), _tokens(size)


def _bert(size: Size) -> tuple[nn.Module, Batch]:
    config = BertConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_attention_heads=size.heads,
        vocab_size=size.vocabulary,
    )
    return WithLoss(BertForMaskedLM(config)), _tokens(size)


def _vit(size: Size) -> tuple[nn.Module, Batch]:
    config = ViTConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_attention_heads=size.heads,
        image_size=size.pixels,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        num_labels=CLASSES,
    )
    return WithLoss(ViTForImageClassification(config)), _images(size)


def _resnet50(size: Size) -> tuple[nn.Module, Batch]:
    narrower = 768 // size.width
    config = ResNetConfig(
        embedding_size=max(8, 64 // narrower),
        hidden_sizes=[width // narrower for width in (256, 512, 1024, 2048)],
        num_labels=CLASSES,
    )
    return WithLoss(ResNetForImageClassification(config)), _images(size)


def _unet(size: Size) -> tuple[nn.Module, Batch]:
    if find_spec("diffusers") is None:
        labels = torch.randint(0, 21, (size.images, size.pixels, size.pixels))
        network = UNet(width=min(32, size.width // 8), levels=min(4, size.layers))
        return WithLoss(network), (torch.randn(size.images, 3, size.pixels, size.pixels), labels)
    from diffusers import UNet2DModel

    pixels = size.pixels // 16 * 8
    denoiser: Any = UNet2DModel(
        sample_size=pixels,
        block_out_channels=tuple(32 * max(1, size.width * times // 256) for times in (1, 1, 2, 2)),
        layers_per_block=1,
        dropout=0.1,
        attention_head_dim=32,
    )
    images = max(1, size.images // 4)
    shape = (images, 3, pixels, pixels)
    return DenoisingLoss(denoiser), (torch.randn(shape), torch.randint(0, 1000, (images,)), torch.randn(shape))


def _mixture(size: Size) -> tuple[nn.Module, Batch]:
    return WithLoss(MixtureOfExperts(size)), _tokens(size)


def without_dropout(module: nn.Module) -> nn.Module:
    """Set every rate of dropout in a module to zero, however its parts call it, and return it."""
    for part in module.modules():
        for name in ("p", "dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return module


MODELS = (
    MeasuredModel("GPT-2", _gpt2, "model.transformer.h"),
    MeasuredModel("Llama-style", _llama, "model.model.layers"),
    MeasuredModel("BERT", _bert, "model.bert.encoder.layer"),
    MeasuredModel("ViT", _vit, "model.vit.layers"),
    MeasuredModel("ResNet-50", _resnet50, "model.resnet.encoder.stages"),
    MeasuredModel("U-Net", _unet, None),
    MeasuredModel("mixture of experts", _mixture, "model.1"),
)
