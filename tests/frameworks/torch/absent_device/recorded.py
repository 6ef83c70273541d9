"""Models whose peaks an H100 measured, and these peaks."""

from typing import Any

import torch
from torch import Tensor, nn

MIB = 2**20
MEASURED_MIB = {"llama1b": 12_521.0, "llama1b_checkpointed": 5_395.2, "gpt2_medium": 10_449.8, "resnet50": 10_029.0}
"""`max_memory_allocated` of a compiled training step above the memory between steps; torch 2.13.0 with CUDA 13.0."""

CHECKPOINTED_MIB = {"llama1b": 5_395.0, "gpt2_medium": 2_843.0}
"""Compiled peaks of the same training steps with every block checkpointed."""


def llama1b(*, checkpointed: bool = False) -> Any:
    """Return Llama 1B in bfloat16 on 4 x 2,048 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128256,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().train()
    if checkpointed:
        model.gradient_checkpointing_enable()
    return _step(model, lambda model, tokens: model(input_ids=tokens, labels=tokens).loss), (_tokens(4, 2048),)


def llama1b_checkpointed() -> Any:
    return llama1b(checkpointed=True)


def gpt2_medium() -> Any:
    """Return GPT-2 medium with dropout and autocast to bfloat16 on 8 x 1,024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)).cuda().train()

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    return _step(model, loss), (_tokens(8, 1024),)


def resnet50() -> Any:
    """Return ResNet-50 with autocast to bfloat16 on 256 images of 224 pixels, channels last."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).cuda().to(memory_format=torch.channels_last)
    images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)

    def loss(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(model(images).logits, classes)

    return _step(model.train(), loss), (images, torch.zeros(256, dtype=torch.long, device="cuda"))


def _tokens(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.long, device="cuda")


def _step(model: nn.Module, loss: Any) -> Any:
    from lowtide.torch import TrainingStep

    return TrainingStep(model, loss, torch.optim.AdamW(model.parameters(), fused=True))
