"""Losses over many classes: peak, time and bits of a whole AdamW step, beside what else keeps logits from being whole.

python benchmarks/bench_torch_logits.py                  # every model and way, each in a process of its own
python benchmarks/bench_torch_logits.py GPT-2-like lowtide   # one of them alone, as a line of JSON
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import torch
from results import write_section
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import lowtide.torch as lt
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

SECTION = "Losses over many classes in PyTorch"
SEQUENCES, LENGTH, CHUNKS, REPEATS, LIMIT = 4, 512, 16, 3, 600
MODELS = {"GPT-2-like": (192, 50257, True), "Llama-like": (256, 128256, False)}
"""Width, classes, and whether the table of tokens is the head, too."""
Result = dict[str, Any]


class Block(nn.Module):
    """Attention without a mask matrix and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mixed, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        parts = self.mixed(self.norms[0](x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (-1, 64)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class LanguageModel(nn.Module):
    """Four blocks between a table of tokens and a head."""

    def __init__(self, width: int, classes: int, tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(classes, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(4)), nn.LayerNorm(width))
        self.head = nn.Linear(width, classes, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the head is given, one row a token."""
        return self.blocks(self.tokens(tokens)).flatten(0, 1)


def plain(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss as people write it."""
    return functional.cross_entropy(model.head(model.hidden(tokens)), tokens.flatten())


def linear_cross_entropy(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss by PyTorch's own op for head and loss together."""
    return functional.linear_cross_entropy(model.hidden(tokens), model.head.weight, tokens.flatten())


def checkpointed(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss by chunks, each computed again in the backward pass."""

    def summed(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model.head(x), wanted, reduction="sum")

    chunks = zip(model.hidden(tokens).chunk(CHUNKS), tokens.flatten().chunk(CHUNKS), strict=True)
    losses = [checkpoint(summed, x, wanted, use_reentrant=False) for x, wanted in chunks]
    return torch.stack(losses).sum() / tokens.numel()


WAYS: dict[str, Callable[[LanguageModel, torch.Tensor], torch.Tensor]] = {
    "eager": plain,
    "lowtide": plain,
    "Inductor": plain,
    "auto_chunker": plain,
    "linear_cross_entropy": linear_cross_entropy,
    "checkpointed chunks": checkpointed,
}


def run(name: str, way: str) -> Result:
    """Train for some steps one way; the first ones warm up."""
    width, classes, tied = MODELS[name]
    torch.manual_seed(0)
    model = LanguageModel(width, classes, tied)
    tokens = torch.randint(0, classes, (SEQUENCES, LENGTH))
    optimizer = torch.optim.AdamW(model.parameters())
    step = _step(way, model, optimizer, tokens)
    loss = step(tokens)
    bits = _digest([loss, *model.state_dict().values()])
    step(tokens)
    peak, _ = peak_of_call(lambda: step(tokens), torch.device("cpu"))
    return {"bits": bits, "peak": peak / 2**20, "seconds": min(_seconds(step, tokens) for _ in range(REPEATS))}


def _step(way: str, model: LanguageModel, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> Any:
    loss = WAYS[way]
    if way == "lowtide":
        return lt.training_step(model, loss, optimizer, (tokens,))
    if way in ("Inductor", "auto_chunker"):
        options: dict[str, Any] = {"auto_chunker.enable": True} if way == "auto_chunker" else {}
        loss = torch.compile(loss, options=options)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        result = loss(model, tokens)
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        return result.detach()

    return step


def _digest(tensors: list[torch.Tensor]) -> str:
    found = sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def _seconds(step: Any, tokens: torch.Tensor) -> float:
    start = time.perf_counter()
    step(tokens)
    return time.perf_counter() - start


def run_apart(name: str, way: str) -> Result:
    """Run one way in a process of its own; what fails or takes too long comes back as its last line."""
    command = [sys.executable, __file__, name, way]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {LIMIT} s"}
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 else {"failed": lines[-1] if lines else "killed"}


def row(name: str, way: str, found: Result, eager: Result) -> str:
    """Return a row of the table."""
    if "failed" in found:
        return f"| {name} | {way} | {found['failed']} | | |"
    ratio = f"{found['seconds'] / eager['seconds']:.2f}" if "seconds" in eager else ""
    equal = "yes" if found["bits"] == eager.get("bits") else "no"
    return f"| {name} | {way} | {found['peak']:.1f} | {ratio} | {equal} |"


def main() -> None:
    """Run one way, or all and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", choices=MODELS)
    parser.add_argument("way", nargs="?", choices=WAYS)
    given = parser.parse_args()
    if given.way is not None:
        print(json.dumps(run(given.model, given.way)))
        return
    rows: list[str] = []
    for name in MODELS:
        eager: Result = {}
        for way in WAYS:
            found = run_apart(name, way)
            eager = eager or found
            rows.append(row(name, way, found, eager))
            print(rows[-1], flush=True)
    text = (
        f"A whole AdamW step on {SEQUENCES} x {LENGTH} tokens in float32, {torch.get_num_threads()} threads; every way "
        f"in a process of its own, from the same weights. Peaks in MiB above what lasts, the third step; times beside "
        f"eager's, the best of {REPEATS}. Bits: of loss and parameters after one step. Checkpointed "
        f"chunks: {CHUNKS}, by hand."
    )
    head = "| model | way | peak | time | bits of eager |\n|---|---|--:|--:|---|\n"
    write_section(SECTION, "python benchmarks/bench_torch_logits.py", f"{text}\n\n{head}" + "\n".join(rows))


if __name__ == "__main__":
    main()
