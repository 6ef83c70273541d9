"""A recipe in the style of torchtune within a budget: a class that sets up, steps and trains.

Such recipes compile each layer and the loss separately. A budget covers one graph, so this recipe compiles model and
loss as one function.

    python examples/torchtune_loop.py          # plain
    python examples/torchtune_loop.py 60%      # within 60 % of the peak of the unmodified program
"""

import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTH, HIDDEN, LAYERS, VOCABULARY, RANK, IGNORED = 64, 192, 4, 96, 4, -100


class LowRank(nn.Module):
    """A frozen linear layer with a trained update of low rank."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(into, out, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(into, RANK, bias=False), nn.Linear(RANK, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(functional.dropout(x, 0.05, self.training)))


class Layer(nn.Module):
    """A gated multilayer perceptron with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gate, self.up, self.down = LowRank(WIDTH, HIDDEN), LowRank(WIDTH, HIDDEN), LowRank(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    """A small language model without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output = LowRank(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


class Recipe:
    """Finetuning on one device."""

    def __init__(self, budget: str | None, compiler: str = "inductor") -> None:
        torch.manual_seed(0)
        self.model = Decoder()
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, 1e-3)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=4)
        self.batches = [torch.randint(VOCABULARY, (8, 64)) for _ in range(4)]
        self.loss_step = self.forward_and_loss
        if budget is not None:
            options: dict[str, Any] = {"budget": budget, "compiler": compiler}
            self.loss_step = torch.compile(self.forward_and_loss, backend="lowtide", options=options)

    def forward_and_loss(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each next token, without ignored tokens."""
        labels = functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        return functional.cross_entropy(self.model(tokens).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    def train(self) -> list[float]:
        """Return the loss of every step."""
        losses: list[float] = []
        for tokens in self.batches:
            loss = self.loss_step(tokens, tokens)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.schedule.step()
            losses.append(loss.item())
        return losses


if __name__ == "__main__":
    print(*Recipe(sys.argv[1] if len(sys.argv) > 1 else None).train())
