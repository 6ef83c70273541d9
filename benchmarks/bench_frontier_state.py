"""Training steps whose optimizer state does not fit the device, beside full checkpointing and ZeRO-Offload's rule.

Every cell is captured and planned in a process of its own and leaves a file, so that a run that was stopped goes on.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from results import ROOT, table_head, write_section

sys.path.insert(0, str(ROOT))

import lowtide
from examples.frontier import MODELS, captured
from examples.master_weights import MasterAdamW
from lowtide.api.step_captures import SizedStep, no_forms
from lowtide.core.effort import EffortName
from lowtide.engine.costs import price
from lowtide.engine.costs.devices import Device, device_named
from lowtide.engine.graph import Graph
from lowtide.engine.offload import host_of_device
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fitting import fit_device
from lowtide.reporting.shortfall import describe_missed

SECTION = "Steps with optimizer state on the host"
COMMAND = "python benchmarks/bench_frontier_state.py"
GIB = 2**30
CELLS = (
    ("8b", 1, 1, 1024, "t4", 16.0),
    ("8b", 1, 1, 1024, "rtx4090", 24.0),
    ("8b", 1, 1, 1024, "l40s", 48.0),
    ("8b", 1, 1, 1024, "a100-80", 80.0),
    ("8b", 1, 1, 8192, "h100", 80.0),
    ("qwen3-30b-a3b", 1, 1, 1024, "h200", 139.0),
    ("qwen3-30b-a3b", 1, 1, 8192, "h200", 139.0),
    ("405b", 64, 8, 8192, "h100", 80.0),
)
EFFORT: EffortName = "fast"
UPDATE_BYTES = 2 + 3 * 4 + 3 * 4 + 2
"""Bytes per parameter that an update on the CPU touches: the gradient, three states read and written, the parameter."""
PARAMETER_BYTES = 2
LEAD = (
    "Steps of `examples/frontier.py` in bfloat16 with `examples/master_weights.py`: AdamW with master weights and "
    "moments in float32, 12 bytes per parameter. One sequence per rank. Everything is predicted: prices are the peak "
    "figures of the device, and copies take its link to the host, both ways at the same time. Device memory includes "
    "parameters and the state that stay there. `unlimited` is the program on a device that holds everything. "
    "`checkpointing` checkpoints every block with `torch.utils.checkpoint` and keeps all state on the device. "
    "`ZeRO-Offload's rule` checkpoints every block, keeps all state on the host, and updates on the CPU. Its model is "
    "generous: gradients leave the device as soon as they are known, in the order with the lowest peak that lowtide "
    "finds, and their copies hide behind computation; the update touches 28 bytes per parameter at the speed of the "
    "host's memory for one device, 51 GB/s for an A100 and 77 GB/s for an H100 in a node of 8; updated parameters "
    "return meanwhile. `lowtide` is the answer of `fits`: the cheapest techniques that fit, priced on the timeline. "
    "Parameters move to the host if all state there is not enough. A parameter whose state is on the host is updated "
    "there or on the device, and `updated` is the state and parameters updated on the host. Extra time is beyond "
    "`unlimited`. Times of plans that miss the budget are left out."
)


def measure_cell(name: str, data: int, tensor: int, length: int, device_name: str, gib: float) -> list[dict[str, Any]]:
    """Return the rows of one model, mesh, length and device."""
    device, budget = device_named(device_name), int(gib * GIB)
    profile = f"eager@{device_name}"
    graph = captured(MODELS[name], data=data, tensor=tensor, length=length, optimizer=MasterAdamW)
    space = graph.spaces[0].name
    held, base = graph.persistent_bytes()[space], float(price(graph, profile).seconds.sum())
    rows = [_row("unlimited", held + _peak(graph), 0, base)]
    checkpointed = captured(MODELS[name], data=data, tensor=tensor, length=length, optimizer=MasterAdamW, policy="full")
    seconds = float(price(checkpointed, profile).seconds.sum())
    rows.append(_row("checkpointing", held + _peak(checkpointed), 0, seconds))
    del checkpointed
    rows.append(_by_rule(name, data, tensor, length, device, profile, held))
    started = time.process_time()
    host = host_of_device(device)
    settings = PlanSettings(host=host, costs=profile, effort=EFFORT, addresses=False)
    model = SizedStep(graph, no_forms, host)
    fit = fit_device(model, budget, settings, None, model.planned)
    result = fit.result
    row = _row(
        "lowtide",
        result.persistent_bytes[space] + result.peak_bytes[space],
        result.state_on_host_bytes + result.peak_bytes.get("host", 0),
        base * (1 + result.extra_time),
    )
    row["updated"] = result.updated_on_host_bytes
    row["techniques"] = None if fit.techniques is None else sorted(fit.techniques)
    row["why"] = None if result.shortfall is None else describe_missed(result)
    return [*rows, {**row, "took": time.process_time() - started}]


def _row(program: str, device_bytes: int, host_bytes: int, seconds: float) -> dict[str, Any]:
    return {"program": program, "device": device_bytes, "host": host_bytes, "seconds": seconds}


def _peak(graph: Graph) -> int:
    return lowtide.minimize(graph, allow=["share"], effort="fast").baseline_peak_bytes[graph.spaces[0].name]


def _by_rule(name: str, data: int, tensor: int, length: int, device: Device, profile: str, held: int) -> dict[str, Any]:
    """Return the row of ZeRO-Offload's rule.

    Its program on the device is that with an optimizer without state, whose updates stand for the copies of gradients.
    """
    without_state = captured(
        MODELS[name], data=data, tensor=tensor, length=length, optimizer=torch.optim.SGD, policy="full"
    )
    space = without_state.spaces[0].name
    parameters = without_state.persistent_bytes()[space]
    plan = lowtide.minimize(without_state, allow=["reorder", "share"], effort="fast", costs=profile)
    copies = parameters / device.host_bytes_per_second
    update = parameters / PARAMETER_BYTES * UPDATE_BYTES / host_of_device(device).update_bytes_per_s
    seconds = max(float(price(without_state, profile).seconds.sum()), copies) + max(update, copies)
    return _row("ZeRO-Offload's rule", parameters + plan.peak_bytes[space], held - parameters, seconds)


def _lines(cell: tuple[Any, ...], rows: list[dict[str, Any]]) -> list[str]:
    name, data, tensor, length, device, gib = cell
    base = rows[0]["seconds"]
    lines: list[str] = []
    for row in rows:
        about = [name, f"{data} x {tensor}", f"{length:,}", f"{device}, {gib:.0f}"] if not lines else [""] * 4
        fits = "" if row["program"] == "unlimited" else "yes" if row["device"] <= gib * GIB else "no"
        shows_time = row.get("why") is None
        figures = [
            fits,
            f"{row['device'] / GIB:.1f}",
            f"{row['host'] / GIB:.1f}",
            f"{row['updated'] / GIB:.1f}" if "updated" in row else "",
            f"{row['seconds']:.2f} s" if shows_time else "",
            f"{row['seconds'] / base - 1:+.1%}" if shows_time else "",
            f"{row['took']:.0f} s" if "took" in row else "",
        ]
        lines.append(f"| {' | '.join([*about, row['program'], *figures])} |")
    return lines


def _reasons(cells: list[tuple[tuple[Any, ...], list[dict[str, Any]]]]) -> list[str]:
    return [f"- {cell[0]} on {cell[4]}: {rows[-1]['why']}" for cell, rows in cells if rows[-1].get("why")]


def main() -> None:
    """Run the cells that have no file yet, then write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/frontier_state"), help="where cells leave files")
    parser.add_argument("--cell", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder: Path = given.folder
    if given.cell is not None:
        print(json.dumps(measure_cell(*CELLS[given.cell])))
        return
    folder.mkdir(parents=True, exist_ok=True)
    measured: list[tuple[tuple[Any, ...], list[dict[str, Any]]]] = []
    for number, cell in enumerate(CELLS):
        file = folder / f"{'-'.join(map(str, cell))}.json"
        if not file.exists():
            command = [sys.executable, __file__, "--cell", str(number)]
            file.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        measured.append((cell, json.loads(file.read_text())))
    names = [
        "model",
        "data x tensor",
        "tokens",
        "device, GiB",
        "program",
        "fits",
        "device",
        "host",
        "updated",
        "step",
        "extra time",
    ]
    lines = table_head([*names, "planning"], 6)
    for cell, rows in measured:
        lines += _lines(cell, rows)
    write_section(SECTION, COMMAND, "\n".join([LEAD, "", *lines, "", *_reasons(measured)]))


if __name__ == "__main__":
    main()
