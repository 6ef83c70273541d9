"""Fourteen everyday models within budgets under Inductor, beside what PyTorch itself can do: peaks, times, planning.

Every cell is kept in a file, and a model runs in a process of its own: started again, the script goes on where it was.
"""

import argparse
import json
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from bench_torch_compile_time import planning_timed, processor_seconds
from everyday_models import EVERYDAY, SMALL
from measured_models import MeasuredModel
from results import write_section
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

from lowtide.frameworks.torch.compile.programs import forget_programs
from lowtide.torch import measure

SECTION = "Everyday training under Inductor"
CELLS = Path("out/every_day")
SHARES = (0.7, 0.5, 0.4)
TORCH_BUDGETS = (0.5, 0.2)
"""Of PyTorch's own `activation_memory_budget`; with less it needs more, since all that runs again does so at once."""
TIMED = 5
MOST_PLANNING = 0.2
Cell = Mapping[str, Any]


def ways(model: MeasuredModel) -> list[str]:
    """Return the ways in which a model is run; Inductor alone comes first, since budgets are shares of its peak."""
    peers = [f"torch {share}" for share in TORCH_BUDGETS] + ["checkpoint"] * (model.blocks is not None)
    return ["inductor", "aot_eager", *peers, *(f"lowtide {share}" for share in (1.0, *SHARES))]


def path_of(model: MeasuredModel, way: str) -> Path:
    """Return where a cell is kept."""
    return CELLS / f"{model.name}.{way}.json".replace(" ", "_")


def measured(model: MeasuredModel, way: str) -> dict[str, Any]:
    """Run a model in one way, from the start, and return what it took."""
    torch.manual_seed(0)
    module, batch = model.make(SMALL)
    module.train()
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    kind, _, share = way.partition(" ")
    spent: list[float] = []
    with planning_timed(spent), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if kind == "checkpoint":
            for block in model.block_list(module):
                _checkpoint(block)
        budget = float(share) if kind == "torch" else 1.0
        with functorch_config.patch(activation_memory_budget=budget):
            call = compiled(model, module, kind, share)
            started = processor_seconds()
            call(*batch).backward()
            first = processor_seconds() - started
        module.zero_grad(set_to_none=True)
        step = measure(lambda *given: call(*given).backward(), *batch, state=[module], timed_calls=1)
        seconds = min(_seconds(call, batch) for _ in range(TIMED))
    return {
        "peak": step.measured_peak_bytes,
        "predicted": step.predicted_peak_bytes,
        "held": sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()]),
        "seconds": seconds,
        "first": first,
        "planning": sum(spent),
        "said": [str(each.message) for each in said if str(each.message).startswith("lowtide")],
    }


def compiled(model: MeasuredModel, module: nn.Module, kind: str, share: str) -> Callable[..., torch.Tensor]:
    """Return a module compiled in one way."""
    if kind != "lowtide":
        return torch.compile(module, backend="aot_eager" if kind == "aot_eager" else "inductor", dynamic=False)
    alone = json.loads(path_of(model, "inductor").read_text())
    options = {"budget": int(alone["peak"] * float(share)) + alone["held"]}
    return torch.compile(module, backend="lowtide", options=options, dynamic=False)


def _checkpoint(block: nn.Module) -> None:
    plain = block.forward
    block.forward = lambda *given, **named: checkpoint(plain, *given, use_reentrant=False, **named)  # type: ignore[method-assign]


def _seconds(call: Callable[..., torch.Tensor], batch: tuple[torch.Tensor, ...]) -> float:
    started = time.process_time()
    call(*batch).backward()
    return time.process_time() - started


def run_cells(name: str) -> None:
    """Run the cells of a model that are missing."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    (model,) = (each for each in EVERYDAY if each.name == name)
    for way in ways(model):
        path = path_of(model, way)
        if not path.exists():
            cell = measured(model, way)
            path.write_text(json.dumps(cell))
            print(f"{name}, {way}: {cell['peak'] / 2**20:.2f} MiB, {cell['seconds'] * 1e3:.0f} ms", flush=True)


def row(model: MeasuredModel, cells: Mapping[str, Cell], share: float) -> tuple[str, dict[str, bool]]:
    """Return the line of a model and a share, and which promises hold there."""
    alone, ours = cells["inductor"], cells[f"lowtide {share}"]
    peers = {way: cell for way, cell in cells.items() if not way.startswith("lowtide")}
    allowed = alone["peak"] * share
    fitting = {way: cell for way, cell in peers.items() if cell["peak"] <= allowed}
    fastest = min((cell["seconds"] for way, cell in fitting.items() if way.startswith("torch")), default=None)
    least = min(peers, key=lambda way: peers[way]["peak"])
    kept = {
        "within": ours["peak"] <= allowed,
        "within where a peer is": ours["peak"] <= allowed or not fitting,
        "faster": fastest is None or ours["seconds"] <= fastest,
        "compared": fastest is not None,
        "planning": ours["planning"] <= MOST_PLANNING * alone["first"],
    }
    figures = [
        f"{share:.0%}",
        f"{alone['peak'] / 2**20:.2f} MiB",
        f"{ours['peak'] / alone['peak']:.1%}",
        f"{peers[least]['peak'] / alone['peak']:.1%} ({least})",
        f"{ours['seconds'] / alone['seconds']:.2f}x",
        "" if fastest is None else f"{fastest / alone['seconds']:.2f}x",
        f"{ours['planning'] / alone['first']:.0%}",
        "yes" if kept["within"] else "**no**" if fitting else "no, nor any other",
    ]
    return f"| {model.name} | {' | '.join(figures)} |", kept


def main() -> None:
    """Run one model's cells, or all that is missing and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the model of this name")
    parser.add_argument("--cells", help="run the cells of this model here", metavar="MODEL")
    given = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    if given.cells is not None:
        run_cells(given.cells)
    else:
        write_table(given.only)


def write_table(only: str | None) -> None:
    """Run what is missing of all models, or of one, and print the table; of all, write it into RESULTS.md."""
    models = [each for each in EVERYDAY if only in (None, each.name)]
    for model in models:
        if not all(path_of(model, way).exists() for way in ways(model)):
            subprocess.run([sys.executable, __file__, "--cells", model.name], check=True)
    head = ["budget", "Inductor alone", "peak", "least of the others", "step", "torch's budget", "planning", "within"]
    lines = [f"| model | {' | '.join(head)} |", f"|---|{'--:|' * len(head)}"]
    promises: list[dict[str, bool]] = []
    for model in models:
        cells = {way: json.loads(path_of(model, way).read_text()) for way in ways(model)}
        for share in (1.0, *SHARES):
            line, kept = row(model, cells, share)
            lines.append(line)
            promises.append(kept)
    count = {name: sum(kept[name] for kept in promises) for name in promises[0]}
    compared = [kept for kept in promises if kept["compared"]]
    lead = (
        "Peaks are measured and shares of that of Inductor alone, without weights; step times are processor time of "
        "one thread, least of five, beside Inductor alone; torch's budget: the fastest of its own that fits there; "
        "planning: its processor time beside the first step of Inductor alone, compilers included. "
        f"Within the budget: {count['within']} of {len(promises)}; in every cell that aot_eager, Inductor with torch's "
        f"own budget, or checkpointing of each block meets: {count['within where a peer is']} of {len(promises)}. At "
        f"least as fast as torch's own budget: {sum(kept['faster'] for kept in compared)} of {len(compared)} cells "
        f"that it meets. Planning takes at most {MOST_PLANNING:.0%}: {count['planning']} of {len(promises)}."
    )
    print("\n".join([lead, "", *lines]))
    if only is None:
        write_section(SECTION, "python benchmarks/bench_torch_every_day.py", "\n".join([lead, "", *lines]))


if __name__ == "__main__":
    main()
