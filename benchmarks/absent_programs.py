"""Training steps that are planned for an H100 that is not there, and the peaks that an H100 measured for them."""

from typing import Any

import torch
from torch import Tensor, nn

MEASURED_MIB = {"llama": 12_521.0, "llama_in_blocks": 5_395.2, "gpt2": 10_449.8, "resnet": 10_029.0}
"""`max_memory_allocated` of a compiled training step above the memory between steps; torch 2.13.0 with CUDA 13.0."""

CHECKPOINTED_MIB = {"llama": 5_395.0, "gpt2": 2_843.0}
"""Compiled peaks of the same training steps with every block checkpointed."""


def llama(*, in_blocks: bool = False) -> Any:
    """Return Llama 1B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128_256,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    return _step(model, _tokens(4, 2048), in_blocks=in_blocks, autocast=False)


def llama_in_blocks() -> Any:
    """Return Llama 1B with every block checkpointed."""
    return llama(in_blocks=True)


def gpt2(*, in_blocks: bool = False) -> Any:
    """Return GPT-2 medium with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False))
    return _step(model, _tokens(8, 1024), in_blocks=in_blocks, autocast=True)


def gpt2_in_blocks() -> Any:
    """Return GPT-2 medium with every block checkpointed."""
    return gpt2(in_blocks=True)


def resnet() -> Any:
    """Return ResNet-50 with images in channels-last format."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).to(memory_format=torch.channels_last)
    images = torch.randn(256, 3, 224, 224).to(memory_format=torch.channels_last)

    def loss(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(model(images).logits, classes)

    return _training(model, loss), (images, torch.zeros(256, dtype=torch.long))


def head() -> Any:
    """Return an output layer with its loss, and the gradients of its weight and its input."""

    def loss(model: nn.Module, rows: Tensor, classes: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(rows).float(), classes)

    layer = nn.Linear(2048, 248_320, bias=False, dtype=torch.bfloat16)
    rows = torch.zeros(16_384, 2048, dtype=torch.bfloat16, requires_grad=True)
    return _training(layer, loss, torch.optim.SGD), (rows, torch.zeros(16_384, dtype=torch.long))


def _tokens(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.long)


def _step(model: Any, tokens: Tensor, *, in_blocks: bool, autocast: bool) -> Any:
    if in_blocks:
        model.gradient_checkpointing_enable()

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return model(input_ids=tokens, labels=tokens).loss

    return _training(model, loss), (tokens,)


def _training(model: nn.Module, loss: Any, optimizer: Any = torch.optim.AdamW) -> Any:
    from lowtide.torch import TrainingStep

    return TrainingStep(model.train(), loss, optimizer(model.parameters(), lr=1e-3))
