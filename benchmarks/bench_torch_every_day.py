"""Fourteen everyday models within budgets under Inductor, beside what PyTorch itself can do: peaks, then times.

Peaks do not depend on what else the machine does, and need no code of kernels: `--stage peaks` runs anywhere. Times
need a quiet machine, and the peaks, which say what is worth timing; the table shows those that are there. All ways of a
model are compiled first, each in two processes of its own, and then take steps in turns. Every cell is kept in a file:
started again, the script goes on where it was.
"""

import argparse
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from empty_kernels import kernels_left_empty
from everyday_models import EVERYDAY, SMALL
from measured_models import Batch, MeasuredModel
from results import write_section
from torch import nn
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch.utils.checkpoint import checkpoint

from lowtide.frameworks.torch.planning.programs import forget_programs
from lowtide.torch import measure

SECTION = "Everyday training under Inductor"
CELLS = Path("out/every_day")
SHARES = (0.7, 0.5, 0.4)
TORCH_BUDGETS = (0.7, 0.5, 0.2)
"""Of PyTorch's own `activation_memory_budget`; with less it needs more, since all that runs again does so at once."""
TIMED = 15
PROCESSES = 2
"""In which each way is timed: the same code takes up to a tenth longer in some processes than in others."""
COMPILED_AT_ONCE = 2
MOST_SLOWER = 1.05
READY = "ready"
Cell = Mapping[str, Any]
Stepping = subprocess.Popen[str]
"""A process that takes steps of a model."""


def ways(model: MeasuredModel) -> list[str]:
    """Return the ways in which a model is run; Inductor alone comes first, since budgets are shares of its peak."""
    peers = [f"torch {share}" for share in TORCH_BUDGETS] + ["checkpoint"] * (model.blocks is not None)
    return ["inductor", "aot_eager", *peers, *(f"lowtide {share}" for share in (1.0, *SHARES))]


def ways_timed(model: MeasuredModel) -> list[str]:
    """Return the ways that are timed: Inductor alone, every budget, and PyTorch's own that comes closest to it."""
    peers = [torch_within(model, share) for share in SHARES]
    return ["inductor", *dict.fromkeys(peer for peer in peers if peer), *(f"lowtide {share}" for share in SHARES)]


def torch_within(model: MeasuredModel, share: float) -> str | None:
    """Return PyTorch's largest own budget whose measured peak is within a share of that of Inductor alone."""
    allowed = share * read(model, "inductor", "peaks")["peak"]
    fitting = [way for way in ways(model) if way.startswith("torch") and read(model, way, "peaks")["peak"] <= allowed]
    return fitting[0] if fitting else None


def path_of(model: MeasuredModel, way: str, stage: str) -> Path:
    """Return where a cell is kept."""
    return CELLS / stage / f"{model.name}.{way}.json".replace(" ", "_")


def read(model: MeasuredModel, way: str, stage: str) -> Cell:
    """Return a cell that was run."""
    return json.loads(path_of(model, way, stage).read_text())


def peak_of(model: MeasuredModel, way: str) -> dict[str, Any]:
    """Return what a model takes that is run in one way, from the start."""
    with (
        kernels_left_empty(),
        inductor_config.patch(fx_graph_cache=False),
        warnings.catch_warnings(record=True) as said,
        as_in(model, way) as (module, batch, call),
    ):
        warnings.simplefilter("always")
        call(*batch).backward()
        module.zero_grad(set_to_none=True)
        step = measure(lambda *given: call(*given).backward(), *batch, state=[module], timed_calls=1)
    return {
        "peak": step.measured_peak_bytes,
        "predicted": step.predicted_peak_bytes,
        "held": sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()]),
        "said": [str(each.message) for each in said if str(each.message).startswith("lowtide")],
    }


def take_steps(model: MeasuredModel, way: str) -> None:
    """Compile a model in one way, and for every line that comes in take a step and say its processor seconds."""
    with as_in(model, way) as (_, batch, call):
        for _ in range(3):
            call(*batch).backward()
        print(READY, flush=True)
        for _ in sys.stdin:
            print(_seconds(call, batch), flush=True)


@contextmanager
def as_in(model: MeasuredModel, way: str) -> Iterator[tuple[nn.Module, Batch, Callable[..., torch.Tensor]]]:
    """Make a model, a batch and what runs it in one way, with nothing left of what was compiled before."""
    torch.manual_seed(0)
    module, batch = model.make(SMALL)
    module.train()
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    kind, _, share = way.partition(" ")
    if kind == "checkpoint":
        for block in model.block_list(module):
            _checkpoint(block)
    with functorch_config.patch(activation_memory_budget=float(share) if kind == "torch" else 1.0):
        yield module, batch, compiled(model, module, kind, share)


def compiled(model: MeasuredModel, module: nn.Module, kind: str, share: str) -> Callable[..., torch.Tensor]:
    """Return a module compiled in one way."""
    if kind != "lowtide":
        return torch.compile(module, backend="aot_eager" if kind == "aot_eager" else "inductor", dynamic=False)
    alone = read(model, "inductor", "peaks")
    options = {"budget": int(alone["peak"] * float(share)) + alone["held"]}
    return torch.compile(module, backend="lowtide", options=options, dynamic=False)


def _checkpoint(block: nn.Module) -> None:
    plain = block.forward
    block.forward = lambda *given, **named: checkpoint(plain, *given, use_reentrant=False, **named)  # type: ignore[method-assign]


def _seconds(call: Callable[..., torch.Tensor], batch: tuple[torch.Tensor, ...]) -> float:
    started = time.process_time()
    call(*batch).backward()
    return time.process_time() - started


def run_peaks(model: MeasuredModel) -> None:
    """Measure the peaks of a model that are missing."""
    for way in ways(model):
        path = path_of(model, way, "peaks")
        if not path.exists():
            cell = peak_of(model, way)
            path.write_text(json.dumps(cell))
            print(f"{model.name}, {way}: {cell}", flush=True)


def run_times(model: MeasuredModel) -> None:
    """Time all ways of a model in turns, unless that was done."""
    if is_timed(model):
        return
    arguments = [sys.executable, __file__, "--cells", model.name, "--way"]
    waiting = [way for _ in range(PROCESSES) for way in ways_timed(model)]  # the second time, code is compiled already
    compiling, ready = list[tuple[str, Stepping]](), list[tuple[str, Stepping]]()
    while waiting or compiling:
        while waiting and len(compiling) < COMPILED_AT_ONCE:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            compiling.append((waiting[0], subprocess.Popen([*arguments, waiting.pop(0)], text=True, **pipes)))
        ready.append(compiling.pop(0))
        if _line_of(ready[-1][1]) != READY:
            raise SystemExit(f"{model.name}, {ready[-1][0]}: the process ended before it was ready")
    seconds: dict[str, list[float]] = {way: [] for way, _ in ready}
    for _ in range(TIMED):
        for way, process in ready:
            print(file=process.stdin, flush=True)
            seconds[way].append(float(_line_of(process)))
    for _, process in ready:
        process.communicate()
    for way, taken in seconds.items():
        cell = {"seconds": min(taken)}
        path_of(model, way, "times").write_text(json.dumps(cell))
        print(f"{model.name}, {way}: {cell}", flush=True)


def _line_of(process: Stepping) -> str:
    return "" if process.stdout is None else process.stdout.readline().strip()


def is_timed(model: MeasuredModel) -> bool:
    """Tell whether all times of a model are there."""
    return all(path_of(model, way, "times").exists() for way in ways_timed(model))


def row(model: MeasuredModel, share: float) -> tuple[str, dict[str, bool]]:
    """Return the line of a model and a share, and which promises hold there."""
    cells = {way: read(model, way, "peaks") for way in ways(model)}
    alone, ours = cells["inductor"]["peak"], cells[f"lowtide {share}"]["peak"]
    peers = {way: cell["peak"] for way, cell in cells.items() if not way.startswith("lowtide")}
    allowed = alone * share
    least = min(peers, key=lambda way: peers[way])
    kept = {
        "within": ours <= allowed,
        "within where a peer is": ours <= allowed or peers[least] > allowed,
    }
    figures = [
        f"{share:.0%}",
        f"{alone / 2**20:.2f} MiB",
        f"{ours / alone:.1%}",
        f"{peers[least] / alone:.1%} ({least})",
        "yes" if kept["within"] else "no, nor any other" if kept["within where a peer is"] else "**no**",
    ]
    if share != 1 and is_timed(model):
        seconds = {way: read(model, way, "times")["seconds"] for way in ways_timed(model)}
        peer, own = torch_within(model, share), seconds[f"lowtide {share}"]
        figures.append(f"{own / seconds['inductor']:.2f}x")
        figures.append("" if peer is None else f"{seconds[peer] / seconds['inductor']:.2f}x")
        if peer is not None:
            kept["faster"] = own <= seconds[peer]
            kept["at most 5 % slower"] = own <= MOST_SLOWER * seconds[peer]
    else:
        figures += ["", ""]
    return f"| {model.name} | {' | '.join(figures)} |", kept


STAGES: dict[str, Callable[[MeasuredModel], None]] = {"peaks": run_peaks, "times": run_times}


def main() -> None:
    """Run one model's cells, or all that is missing and the table."""
    names = [each.name for each in EVERYDAY]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the model of this name", choices=names)
    parser.add_argument("--stage", choices=STAGES, help="run this stage alone; all of them by default")
    parser.add_argument("--cells", help="run the cells of this model and stage here", choices=names)
    parser.add_argument("--way", help="compile the model of --cells in this way, and take a step for every line read")
    given = parser.parse_args()
    for stage in STAGES:
        (CELLS / stage).mkdir(parents=True, exist_ok=True)
    if given.cells is None:
        write_table(given.only, [given.stage] if given.stage else list(STAGES))
        return
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    (model,) = (each for each in EVERYDAY if each.name == given.cells)
    if given.way is not None:
        take_steps(model, given.way)
    else:
        STAGES[given.stage](model)


def write_table(only: str | None, stages: list[str]) -> None:
    """Run what is missing of all models, or of one, and print the table; of all, write it into RESULTS.md."""
    models = [each for each in EVERYDAY if only in (None, each.name)]
    for stage in stages:
        for model in models:
            subprocess.run([sys.executable, __file__, "--stage", stage, "--cells", model.name], check=True)
    head = ["budget", "Inductor alone", "peak", "least of the others", "within", "step", "torch's budget"]
    lines = [f"| model | {' | '.join(head)} |", f"|---|{'--:|' * len(head)}"]
    promises: list[dict[str, bool]] = []
    for model in models:
        for share in (1.0, *SHARES):
            line, kept = row(model, share)
            lines.append(line)
            promises.append(kept)
    held = {
        name: f"{sum(kept[name] for kept in promises if name in kept)} of {sum(name in kept for kept in promises)}"
        for name in dict.fromkeys(name for kept in promises for name in kept)
    }
    lead = (
        f"Models of width {SMALL.width} and {SMALL.layers} layers. Peaks are measured, and shares of that of Inductor "
        "alone, without weights. "
        f"Within the budget: {held['within']}; in every cell that aot_eager, Inductor with torch's "
        f"own budget, or checkpointing of each block meets: {held['within where a peer is']}."
    )
    n_timed = sum(map(is_timed, models))
    if n_timed:
        lead += (
            f" Step times, of {n_timed} of the models, are processor time of one thread, least of {TIMED} steps taken "
            f"in turns in each of {PROCESSES} processes, beside Inductor alone; torch's budget: its largest own whose "
            "measured peak fits there. At least as fast as that: "
            f"{held.get('faster', 'none')} cells; at most 5 % slower: {held.get('at most 5 % slower', 'none')}."
        )
    print("\n".join([lead, "", *lines]))
    if only is None:
        write_section(SECTION, "python benchmarks/bench_torch_every_day.py", "\n".join([lead, "", *lines]))


if __name__ == "__main__":
    main()
