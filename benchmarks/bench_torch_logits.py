"""Losses over many classes: peak, time and bits of a whole AdamW step and of its gradients alone, beside what else
keeps logits from being whole.

Every cell runs in a process of its own and is kept in a file: started again, the script goes on where it was.

python benchmarks/bench_torch_logits.py                          # all cells that are missing, and the section
python benchmarks/bench_torch_logits.py step GPT-2-like lowtide  # one of them alone
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import write_section
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import lowtide.torch as lt
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import planned_programs

SECTION = "Losses over many classes in PyTorch"
CELLS = Path("out/logits")
SEQUENCES, LENGTH, CHUNKS, REPEATS, LIMIT = 4, 512, 16, 3, 900
MODELS = {"GPT-2-like": (192, 50257, True), "Llama-like": (256, 128256, False)}
"""Width, classes, and whether the table of tokens is the head, too."""
TARGETS = {
    ("step", "GPT-2-like"): 127,
    ("step", "Llama-like"): 231,
    ("gradients", "GPT-2-like"): 113,
    ("gradients", "Llama-like"): 326,
}
"""Whole MiB that lowtide may need, with the bits of eager."""
MOST_SLOWER = 1.3
INDUCTOR = "lowtide, Inductor"
BUDGETS = {"step": "15%", "gradients": "30%"}
"""What is allowed under Inductor: of the step op by op, or of what Inductor alone takes."""
Cell = dict[str, Any]
Call = Callable[[], torch.Tensor]


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
    INDUCTOR: plain,
}
WAYS_OF = {"step": tuple(WAYS), "gradients": ("eager", "lowtide", "Inductor", INDUCTOR)}
PARTS = {"step": "a whole AdamW step", "gradients": "forward and backward alone"}


def run(part: str, name: str, way: str) -> Cell:
    """Train one way and, beside it in turn, eagerly; the first calls warm up and tell the bits.

    Another model is trained before. The first step of AdamW in a process may have other bits than all that follow, with
    eager on both sides.
    """
    _program(part, name, "eager")[0]()
    started = time.perf_counter()
    (call, results, allowed), (eager, wanted, _) = (_program(part, name, each) for each in (way, "eager"))
    call()
    ready = time.perf_counter() - started
    eager()
    equal = all(map(torch.equal, results(), wanted()))
    call()
    peak, _ = peak_of_call(call, torch.device("cpu"))
    seconds = [(_seconds(call), _seconds(eager)) for _ in range(REPEATS)]
    own, theirs = (min(times) for times in zip(*seconds, strict=True))
    found = {"equal": equal, "peak": peak / 2**20, "seconds": own, "eager": theirs, "ready": ready}
    return found | {"allowed": None if way != INDUCTOR else allowed() / 2**20}


def _program(part: str, name: str, way: str) -> tuple[Call, Callable[[], list[torch.Tensor]], Callable[[], int]]:
    """Return a call, what it has made: parameters after a step, or gradients, and what tells the budget once it ran."""
    width, classes, tied = MODELS[name]
    torch.manual_seed(0)
    model = LanguageModel(width, classes, tied)
    nn.init.normal_(model.tokens.weight, std=0.02)  # drawn wider, losses are zero and gradients denormal numbers
    tokens = torch.randint(0, classes, (SEQUENCES, LENGTH))
    optimizer = torch.optim.AdamW(model.parameters())
    loss = WAYS[way]
    if way in ("Inductor", "auto_chunker"):
        options: dict[str, Any] = {"auto_chunker.enable": True} if way == "auto_chunker" else {}
        loss = torch.compile(loss, options=options)
    elif way == INDUCTOR and part == "gradients":
        loss = torch.compile(loss, backend="lowtide", options={"budget": BUDGETS[part]})
    found: list[torch.Tensor] = []

    def differentiated() -> torch.Tensor:
        optimizer.zero_grad()
        result = loss(model, tokens)
        result.backward()
        return result.detach()

    def stepped() -> torch.Tensor:
        result = differentiated()
        optimizer.step()
        optimizer.zero_grad()
        return result

    call: Call = stepped if part == "step" else differentiated
    allowed = _allowed_by_backend
    if way in ("lowtide", INDUCTOR) and part == "step":
        asked: dict[str, Any] = {"compiler": "inductor", "budget": BUDGETS[part]} if way == INDUCTOR else {}
        step = lt.training_step(model, loss, optimizer, (tokens,), **asked)
        call = partial(step, tokens)

        def allowed() -> int:
            return step.result.budget.allowed["cpu"] or 0

    elif way == "lowtide":
        call = _planned_gradients(model, tokens, optimizer)

    def kept() -> torch.Tensor:
        result = call()
        found[:] = [result]
        return result

    def results() -> list[torch.Tensor]:
        made = (parameter if part == "step" else parameter.grad for parameter in model.parameters())
        return [*found, *(tensor.detach() for tensor in made if tensor is not None)]

    return kept, results, allowed


def _allowed_by_backend() -> int:
    """Return what the budget leaves to the program that was compiled last: its plan may be for less."""
    share = int(BUDGETS["gradients"].removesuffix("%"))
    return (planned_programs()[-1].own_peak_bytes or 0) * share // 100


def _planned_gradients(model: LanguageModel, tokens: torch.Tensor, optimizer: torch.optim.Optimizer) -> Call:
    """Return forward and backward pass by a plan, as `lowtide.minimize` and `lowtide.apply` make it."""
    program = lt.TorchModel((partial(plain, model), (tokens,)))
    result = plan_best_form(program, PlanSettings())
    applied = program.apply(result.plan, verified=True)

    def call() -> torch.Tensor:
        optimizer.zero_grad()
        return applied(tokens)

    return call


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def path_of(part: str, name: str, way: str) -> Path:
    """Return where a cell is kept."""
    return CELLS / f"{part}.{name}.{way}.json".replace(" ", "_")


def cell(part: str, name: str, way: str) -> Cell:
    """Return a cell, run now in a process of its own where it is missing; a failure comes back as its last line."""
    path = path_of(part, name, way)
    if not path.exists():
        command = [sys.executable, __file__, part, name, way]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {LIMIT} s"}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    return json.loads(path.read_text())


def row(part: str, name: str, way: str) -> str:
    """Return a row of the table."""
    found = cell(part, name, way)
    if "failed" in found:
        return f"| {PARTS[part]}, {name} | {way} | {found['failed']} | | | | |"
    ratio = found["seconds"] / found["eager"]
    asked = TARGETS[part, name] if way == "lowtide" else found["allowed"]
    is_met = asked is not None and round(found["peak"]) <= asked
    is_met = is_met and (way != "lowtide" or (found["equal"] and ratio <= MOST_SLOWER))
    met = "" if asked is None else f"at most {asked:.0f}: {'met' if is_met else '**missed**'}"
    equal = "yes" if found["equal"] else "no"
    figures = f"{found['peak']:.1f} | {ratio:.2f} | {found['ready']:.0f} s | {equal} | {met}"
    return f"| {PARTS[part]}, {name} | {way} | {figures} |"


def main() -> None:
    """Run one cell, or all that are missing and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("model", nargs="?", choices=MODELS)
    parser.add_argument("way", nargs="?", choices=WAYS)
    given = parser.parse_args()
    if given.way is not None:
        CELLS.mkdir(parents=True, exist_ok=True)
        found = run(given.part, given.model, given.way)
        path_of(given.part, given.model, given.way).write_text(json.dumps(found))
        print(json.dumps(found))
        return
    rows: list[str] = []
    for part in PARTS:
        for name in MODELS:
            for way in WAYS_OF[part]:
                rows.append(row(part, name, way))
                print(rows[-1], flush=True)
    text = (
        f"{SEQUENCES} x {LENGTH} tokens in float32, {torch.get_num_threads()} threads, without a budget but for "
        f"{INDUCTOR}: {BUDGETS['step']} of what the step takes op by op, {BUDGETS['gradients']} of what Inductor alone "
        "takes for the gradients; every way in a process of its own. Peaks in MiB above what lasts, the third call; "
        "times beside eager's, called in turn in the same process, the best of "
        f"{REPEATS} of each. Ready: until the first call is over, planning and compiling included. Bits: of the loss "
        "and all parameters after the first step, or all gradients; another model is trained before, since "
        "eager's own first AdamW step of a process has at times other bits than all later ones. Checkpointed chunks: "
        f"{CHUNKS}, by hand. Asked of lowtide: the peak in whole MiB, with the bits of eager, in at most {MOST_SLOWER} "
        "times the time of eager; under Inductor, the budget."
    )
    head = "| program | way | peak | time | ready | bits of eager | asked |\n|---|---|--:|--:|--:|---|---|\n"
    write_section(SECTION, "python benchmarks/bench_torch_logits.py", f"{text}\n\n{head}" + "\n".join(rows))


if __name__ == "__main__":
    main()
