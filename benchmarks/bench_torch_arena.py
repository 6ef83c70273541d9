"""What PyTorch programs add to resident memory, in an arena and without one: every figure from a process of its own."""

import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch
from measured_models import MODELS, NARROW
from results import write_section

import lowtide.torch
from lowtide.core.units import format_bytes
from lowtide.frameworks.resident import ResidentGrowth
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.torch import InArena

NAMES = ("BERT", "GPT-2", "ResNet-50", "U-Net")
KINDS = ("inference", "step", "step, 40%")
RUNS = 6
WITHIN = 0.10
SECTION = "Resident memory of PyTorch programs"


@dataclass(frozen=True)
class Row:
    """One program in one process."""

    model: str
    kind: str
    placed: bool
    live_bytes: int
    """The most bytes of tensors alive at once in a call, its batch apart."""
    growth_bytes: int
    """The most that calls after the first added to resident memory."""
    arena_bytes: int | None
    fallbacks: int
    """Calls that left their addresses, after the second: the first of a step makes the optimizer's state."""
    seconds: float
    results: list[float]

    @property
    def off(self) -> float:
        """Growth over live bytes."""
        return self.growth_bytes / self.live_bytes


def measured(model: str, kind: str, placed: bool) -> Row:
    """Run a program here."""
    torch.manual_seed(0)
    made = {each.name: each for each in MODELS}[model]
    module, batch = made.make(NARROW)
    program = _step(module, batch, kind) if kind != "inference" else _inference(module, batch)
    call: Callable[..., Any] = lowtide.torch.in_arena(program) if placed else program
    results: list[float] = [float(call(*batch))]
    growth = ResidentGrowth()
    seconds: list[float] = []
    fallbacks: list[int] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        results.append(float(call(*batch)))
        seconds.append(time.perf_counter() - started)
        fallbacks.append(call.use.fallbacks.total() if isinstance(call, InArena) else 0)
    grown = growth.highest_bytes()
    assert grown is not None
    live, _ = peak_of_call(lambda: call(*batch), torch.device("cpu"))
    return Row(
        model=model,
        kind=kind,
        placed=placed,
        live_bytes=live,
        growth_bytes=grown,
        arena_bytes=call.reserved_bytes if isinstance(call, InArena) else None,
        fallbacks=fallbacks[-1] - fallbacks[0],
        seconds=statistics.median(seconds[2:]),
        results=results,
    )


def _step(module: torch.nn.Module, batch: tuple[Any, ...], kind: str) -> Callable[..., Any]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    budget = "40%" if kind.endswith("40%") else None
    return lowtide.torch.training_step(module, None, optimizer, batch, budget=budget)


def _inference(module: torch.nn.Module, batch: tuple[Any, ...]) -> Callable[..., Any]:
    module.eval().requires_grad_(False)
    with torch.no_grad():
        model = lowtide.torch.TorchModel((module, batch))
    return model.apply(lowtide.minimize(model).plan)


def main() -> None:
    """Measure every program in processes of their own, and write the section."""
    if len(sys.argv) == 4:
        warnings.simplefilter("ignore")
        print(json.dumps(asdict(measured(sys.argv[1], sys.argv[2], sys.argv[3] == "placed"))))
        return
    rows = [_in_child(model, kind, how) for model in NAMES for kind in KINDS for how in ("placed", "plain")]
    write_section(SECTION, "python benchmarks/bench_torch_arena.py", _text(rows))


def _in_child(model: str, kind: str, how: str) -> Row:
    command = [sys.executable, __file__, model, kind, how]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"TRANSFORMERS_VERBOSITY": "error"}
    )
    row = Row(**json.loads(ended.stdout.splitlines()[-1]))
    print(
        model, kind, how, format_bytes(row.growth_bytes), format_bytes(row.live_bytes), f"{row.seconds:.3f}", flush=True
    )
    return row


def _text(rows: list[Row]) -> str:
    placed = [row for row in rows if row.placed]
    close = [row for row in placed if abs(row.growth_bytes / (row.arena_bytes or 1) - 1) <= WITHIN]
    mark = "met" if len(close) == len(placed) else "**missed**"
    lines = [
        f"AdamW steps and inference of narrow models, {torch.get_num_threads()} threads, {RUNS} calls after the first. "
        "live: the most bytes of tensors at once, by the allocator's events. growth: the most that calls add to "
        "resident memory, pages of files apart. arena: what is reserved for a call, with its results.",
        "",
        f"- {mark}: growth within {WITHIN:.0%} of the arena: {len(close)} of {len(placed)}",
        "- calls after the second, which meets the optimizer's state for the first time, that left their addresses: "
        f"{sum(row.fallbacks for row in placed)}; "
        f"results differ on {sum(1 for pair in _pairs(rows) if pair[0].results != pair[1].results)} of {len(placed)}",
        "",
        "| model | program | live | growth without | over live | arena | growth in it | over live | time ratio |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for inside, plain in _pairs(rows):
        lines.append(
            f"| {inside.model} | {inside.kind} | {format_bytes(plain.live_bytes)} | {format_bytes(plain.growth_bytes)} "
            f"| {plain.off:.2f} | {format_bytes(inside.arena_bytes or 0)} | {format_bytes(inside.growth_bytes)} "
            f"| {inside.off:.2f} | {inside.seconds / plain.seconds:.2f} |"
        )
    return "\n".join(lines)


def _pairs(rows: list[Row]) -> list[tuple[Row, Row]]:
    grouped = groupby(rows, key=lambda row: (row.model, row.kind))
    return [(inside, plain) for inside, plain in (tuple(group) for _, group in grouped)]


if __name__ == "__main__":
    main()
