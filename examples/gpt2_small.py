"""The training step of GPT-2 small: random weights, AdamW, one sequence of 128 tokens."""

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lowtide.torch import TrainingStep


def language_model_loss(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss of predicting each token from the previous ones."""
    return model(input_ids=tokens, labels=tokens).loss


def training_step() -> tuple[TrainingStep, tuple[torch.Tensor]]:
    """Return the step and an example batch. Nothing is downloaded."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).train()
    model.loss_type = "ForCausalLM"  # the default, set explicitly to avoid a warning
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, model.config.vocab_size, (1, 128))
    return TrainingStep(model, language_model_loss, optimizer), (tokens,)
