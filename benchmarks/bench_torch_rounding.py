"""Whole steps in chunks that give the bits of the untouched step, or equal it to rounding: peak and time.

Language models in chunks of tokens, a network of convolutions in chunks of images.

Every cell runs in a process of its own; steps of both ways and eager ones are taken in turns.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_torch_logits import LENGTH, MODELS, SEQUENCES, LanguageModel, plain
from results import write_section
from torch import nn
from torch.nn import functional
from training_models import UNet

import lowtide
import lowtide.torch as lt

SECTION = "Chunks equal to rounding"
EXACT = ("reorder", "share")
WAYS = {"equal bits": EXACT, "equal bits, within 45%": (*EXACT, "recompute"), "rounding allowed": (*EXACT, "rounding")}
BUDGETS = {"equal bits, within 45%": "45%"}
MODEL, NETWORK = "GPT-2-like", "U-Net"
PROGRAMS = {
    "GPT-2-like, float32, 1 thread": (MODEL, "float32", 1),
    "GPT-2-like, bfloat16, 1 thread": (MODEL, "bfloat16", 1),
    "GPT-2-like, bfloat16, 2 threads": (MODEL, "bfloat16", 2),
    "U-Net, float32, 2 threads": (NETWORK, "float32", 2),
}
REPEATS = 3
IMAGES, SIZE, WIDTH, LEVELS, PIXEL_CLASSES, GROUPS = 8, 128, 32, 3, 21, 4
Call = Callable[[], Any]
Loss = Callable[[Any, torch.Tensor], torch.Tensor]


def ways_of(model: str) -> list[str]:
    """Return the ways to run a model: without chunks of equal bits, rematerialization stands beside the others."""
    return [way for way in WAYS if model == NETWORK or way not in BUDGETS]


def language_model(dtype: str) -> tuple[nn.Module, Loss, tuple[torch.Tensor, ...]]:
    """Return the model of the other benchmark, with its loss and a batch."""
    width, classes, tied = MODELS[MODEL]
    model = LanguageModel(width, classes, tied).to(getattr(torch, dtype))
    nn.init.normal_(model.tokens.weight, std=0.02)  # drawn wider, losses are zero and gradients denormal numbers
    return model, plain, (torch.randint(0, classes, (SEQUENCES, LENGTH)),)


def network(dtype: str) -> tuple[nn.Module, Loss, tuple[torch.Tensor, ...]]:
    """Return a U-Net whose norms are of single images, with its loss and a batch."""
    model = UNet(WIDTH, LEVELS, PIXEL_CLASSES)
    for layers in (layers for layers in model.modules() if isinstance(layers, nn.Sequential)):
        for place, layer in enumerate(layers):
            if isinstance(layer, nn.BatchNorm2d):
                layers[place] = nn.GroupNorm(GROUPS, layer.num_features)
    batch = (torch.randn(IMAGES, 3, SIZE, SIZE), torch.randint(0, PIXEL_CLASSES, (IMAGES, SIZE, SIZE)))
    return model.to(getattr(torch, dtype)), lambda model, x, y: functional.cross_entropy(model(x), y), batch


def run(name: str, dtype: str, threads: int) -> dict[str, Any]:
    """Plan, measure and time the step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, loss, batch = (network if name == NETWORK else language_model)(dtype)
    step = lt.TrainingStep(model, loss, torch.optim.AdamW(model.parameters()))
    program = lt.TorchModel((step, batch))
    cells: dict[str, Any] = {}
    calls: dict[str, Call] = {"eager": lambda: program.captured.run_original(*batch)}
    for way in ways_of(name):
        given: dict[str, Any] = {"budget": BUDGETS[way]} if way in BUDGETS else {}
        found = lowtide.minimize(program, allow=WAYS[way], effort="fast", addresses=False, **given)
        applied, measured = program.apply(found.plan), program.measure(found.plan)
        calls[way] = lambda applied=applied: applied(*batch)
        cells[way] = {
            "eager": measured.original_bytes,
            "predicted": found.peak_bytes["cpu"],
            "peak": measured.after_bytes,
            "equal": measured.outputs_equal,
            "near": measured.outputs_near,
            "difference": _of_gradients(step, calls["eager"], calls[way]),
        }
    seconds = {way: min(taken) for way, taken in _timed(calls).items()}
    for way, cell in cells.items():
        cell["time"] = seconds[way] / seconds["eager"]
    return cells


def _of_gradients(step: Any, eager: Call, planned: Call) -> float:
    """Return how far the gradients of two ways are from each other at most, as shares of the largest of each tensor.

    They are a tenth of AdamW's first moments after one step, which starts from the same parameters both times.
    """
    parameters = list(step.model.parameters())
    kept = [parameter.detach().clone() for parameter in parameters]
    found: list[list[torch.Tensor]] = []
    for call in (eager, planned):
        call()
        found.append([step.optimizer.state[parameter]["exp_avg"].clone() for parameter in parameters])
        with torch.no_grad():
            for parameter, before in zip(parameters, kept, strict=True):
                parameter.copy_(before)
                for state in step.optimizer.state[parameter].values():
                    state.zero_()
    return max(float((one - other).abs().max() / one.abs().max()) for one, other in zip(*found, strict=True))


def _timed(calls: dict[str, Any]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(1 + REPEATS):
        for way, call in calls.items():
            started = time.perf_counter()
            call()
            taken[way].append(time.perf_counter() - started)
    return {way: each[1:] for way, each in taken.items()}


def row(name: str, way: str, cell: dict[str, Any]) -> str:
    """Return the line of a way to run a program."""
    near = f"to rounding, gradients by {cell['difference']:.0e}" if cell["near"] else "**no**"
    figures = [f"{cell[key] / 2**20:.1f}" for key in ("eager", "predicted", "peak")]
    return f"| {name} | {way} | {' | '.join(figures)} | {cell['time']:.2f}x | {'yes' if cell['equal'] else near} |"


def main() -> None:
    """Run one program, or all of them and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the program of this name", choices=list(PROGRAMS))
    given = parser.parse_args()
    if given.only is not None:
        print(json.dumps(run(*PROGRAMS[given.only])))
        return
    lines = [
        f"AdamW steps of the {MODEL} model of `bench_torch_logits.py`, {SEQUENCES} x {LENGTH} tokens, and of a U-Net "
        f"with norms over groups ({LEVELS} levels from width {WIDTH}, {IMAGES} x {SIZE} x {SIZE} pixels), without a "
        "budget but where one is named: 45 % is met by ops that run again, since no chunks of images give equal bits. "
        "Peaks in MiB above what lasts; time beside eager, steps taken in turns. Loss, parameters and the optimizer's "
        "state are beside eager's: equal in all bits, or to rounding, and then gradients differ by that share of the "
        "largest number of their tensor at most. AdamW's first step makes more of it, since it divides gradients by "
        "their size; what counts as rounding there is told by the plain step from inputs that are others in their last "
        "digits.",
        "",
        "| step | chunks | eager | predicted | peak | time | equal |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for name in PROGRAMS:
        made = subprocess.run([sys.executable, __file__, "--only", name], check=True, capture_output=True, text=True)
        cells = json.loads(made.stdout.splitlines()[-1])
        lines += [row(name, way, cell) for way, cell in cells.items()]
        print("\n".join(lines[-len(cells) :]), flush=True)
    write_section(SECTION, "python benchmarks/bench_torch_rounding.py", "\n".join(lines))


if __name__ == "__main__":
    main()
