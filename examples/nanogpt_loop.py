"""A training loop in the style of nanoGPT within a budget. A comment marks the only changed line.

python examples/nanogpt_loop.py            # plain
python examples/nanogpt_loop.py 60%        # within 60 % of the peak of the unmodified program
"""

import math
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

BLOCK, BATCH, WIDTH, HEADS, LAYERS, VOCABULARY = 64, 12, 64, 4, 4, 96
ACCUMULATE, STEPS, RATE, LEAST_RATE, WARM_UP, CLIP = 2, 4, 1e-3, 1e-4, 2, 1.0


class Block(nn.Module):
    """Attention and a multilayer perceptron, each with a normalization before it and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.attend(self.before_attention(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """A decoder that returns logits and, with targets, the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random rows of a text, and the same rows shifted by one token."""
    starts = torch.randint(len(text) - BLOCK, (BATCH,)).tolist()
    return (
        torch.stack([text[start : start + BLOCK] for start in starts]),
        torch.stack([text[start + 1 : start + 1 + BLOCK] for start in starts]),
    )


def learning_rate(step: int) -> float:
    """Return the learning rate of a step: a warm-up, then a cosine."""
    if step < WARM_UP:
        return RATE * (step + 1) / (WARM_UP + 1)
    return LEAST_RATE + 0.5 * (RATE - LEAST_RATE) * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP)))


def train(budget: str | None, compiler: str = "inductor") -> list[float]:
    """Return the loss of every step."""
    torch.manual_seed(1337)
    text = torch.randint(VOCABULARY, (10_000,))
    raw = Gpt()
    optimizer = torch.optim.AdamW(raw.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.1)
    model: Any = raw
    if budget is not None:
        # The changed line:
        model = torch.compile(raw, backend="lowtide", options={"budget": budget, "compiler": compiler})
    losses: list[float] = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = torch.zeros(())
        for _ in range(ACCUMULATE):
            _, loss = model(*get_batch(text))
            (loss / ACCUMULATE).backward()
        nn.utils.clip_grad_norm_(raw.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(*train(sys.argv[1] if len(sys.argv) > 1 else None))
