"""Whole steps in chunks that give the bits of the untouched step, or equal it to rounding: peak and time.

Every cell runs in a process of its own; steps of both ways and eager ones are taken in turns.
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import torch
from bench_torch_logits import LENGTH, MODELS, SEQUENCES, LanguageModel, plain
from results import write_section

import lowtide
import lowtide.torch as lt

SECTION = "Chunks equal to rounding"
EXACT = ("reorder", "share")
WAYS = {"equal bits": EXACT, "rounding allowed": (*EXACT, "rounding")}
MODEL = "GPT-2-like"
PROGRAMS = {
    "float32, 1 thread": ("float32", 1),
    "bfloat16, 1 thread": ("bfloat16", 1),
    "bfloat16, 2 threads": ("bfloat16", 2),
}
REPEATS = 3


def run(dtype: str, threads: int) -> dict[str, Any]:
    """Plan, measure and time the step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    width, classes, tied = MODELS[MODEL]
    model = LanguageModel(width, classes, tied).to(getattr(torch, dtype))
    tokens = torch.randint(0, classes, (SEQUENCES, LENGTH))
    step = lt.TrainingStep(model, plain, torch.optim.AdamW(model.parameters()))
    program = lt.TorchModel((step, (tokens,)))
    cells: dict[str, Any] = {}
    calls = {"eager": lambda: program.captured.run_original(tokens)}
    for way, allow in WAYS.items():
        found = lowtide.minimize(program, allow=allow, effort="fast", addresses=False)
        applied, measured = program.apply(found.plan), program.measure(found.plan)
        calls[way] = lambda applied=applied: applied(tokens)
        cells[way] = {
            "eager": measured.original_bytes,
            "predicted": found.peak_bytes["cpu"],
            "peak": measured.after_bytes,
            "equal": measured.outputs_equal,
            "difference": measured.largest_difference,
            "near": measured.outputs_near,
        }
    seconds = {way: min(taken) for way, taken in _timed(calls).items()}
    for way in WAYS:
        cells[way]["time"] = seconds[way] / seconds["eager"]
    return cells


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
    near = f"to rounding, by at most {cell['difference']:.0e}" if cell["near"] else "**no**"
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
        f"AdamW steps of the {MODEL} model of `bench_torch_logits.py` without a budget, "
        f"{SEQUENCES} x {LENGTH} tokens. Peaks in MiB above what lasts; time beside eager, steps taken in turns; "
        "results beside eager's: all bits, or the largest difference as a share of the largest number of its tensor.",
        "",
        "| step | chunks | eager | predicted | peak | time | equal |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for name in PROGRAMS:
        made = subprocess.run([sys.executable, __file__, "--only", name], check=True, capture_output=True, text=True)
        cells = json.loads(made.stdout.splitlines()[-1])
        lines += [row(name, way, cells[way]) for way in WAYS]
        print("\n".join(lines[-2:]), flush=True)
    write_section(SECTION, "python benchmarks/bench_torch_rounding.py", "\n".join(lines))


if __name__ == "__main__":
    main()
