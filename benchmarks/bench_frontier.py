"""Steps of one rank of large training runs: what fits on a device, and at what cost, beside checkpointing by hand.

Every cell is captured and planned in processes of their own and leaves files, so that a run that was stopped goes on.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from results import ROOT, write_section

sys.path.insert(0, str(ROOT))

import lowtide
from examples.frontier import MODELS, captured
from lowtide.core.errors import LowtideError
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph, read_graph_file, write_graph_file
from lowtide.engine.overlap import communication_of
from lowtide.engine.plan import Plan

SECTION = "Large steps, planned for one rank"
COMMAND = "python benchmarks/bench_frontier.py"
GIB = 2**30
CELLS = (
    ("8b", 8, 1),
    ("70b", 8, 8),
    ("405b", 64, 8),
    ("405b", 512, 8),
    ("deepseek-v3", 32, 32),
    ("deepseek-v3", 128, 32),
)
DEVICES = (80, 141)
PARTS = ("capture", "by_hand", "plan")
BY_HAND = ("full", "selective", "every second")
FEW_LAYERS = (2, 4, 6)
"""Beyond the first ones, where those differ from the rest, or one more of each, where all layers are an odd number."""
PROFILE = "eager@h100"
HEAD = (
    "| model | data x tensor | ops | collectives | capture | host memory | held "
    "| program | plan | peak | bound | cost | least cost | regathered | communication | exposed | time |"
)
LEAD = (
    "The step of one rank of `examples/frontier.py`: bfloat16, AdamW, one sequence of 8,192 tokens. Weights are "
    "sharded over the data-parallel ranks, layers are split over the tensor-parallel ones. The experts of "
    "`deepseek-v3` are split instead, each with an equal share of the tokens. Checkpoints by hand: `full` checkpoints"
    " every block with `torch.utils.checkpoint`, `every second` each other block; `selective` saves attention, the "
    "results of collectives, and every other product, as torchtitan does. Their figures are extrapolated from "
    "programs of two, four and six equal layers (or one more), which are on a straight line. Plans use lowtide's "
    "default settings, on the whole program without checkpoints: within a device, and within the peak of each of the "
    "three. Prices are the peak figures of an H100 on a network of 400 Gbit/s, with collectives priced alone. Cost is"
    " the time beyond the program without checkpoints; least cost is its bound for plans in the same order. Exposed "
    "is the time for which computation waits for communication on a separate stream. Peaks are in GiB, with "
    "persistent tensors; times are processor seconds of one core."
)


def capture(name: str, data: int, tensor: int, file: Path) -> dict[str, Any]:
    """Capture one model on one mesh into a file; returns what that took."""
    started = time.process_time()
    plain = captured(MODELS[name], data=data, tensor=tensor)
    seconds = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    write_graph_file(plain, file)
    return {
        "ops": plain.n_ops,
        "collectives": int((plain.ranks > 1).sum()),
        "held": plain.persistent_bytes()[plain.spaces[0].name],
        "capture": seconds,
        "memory": memory,
    }


def by_hand(name: str, data: int, tensor: int, file: Path) -> dict[str, Any]:
    """Return what checkpoints by hand come to, beside the program in a file."""
    plain = read_graph_file(file)
    base, collectives = float(price(plain, PROFILE).seconds.sum()), int((plain.ranks > 1).sum())
    found: dict[str, Any] = {}
    for policy in BY_HAND:
        peak, seconds, gathered = _continued(name, data, tensor, policy)
        found[policy] = {"peak": round(peak), "cost": seconds / base - 1, "again": round(gathered) - collectives}
    return found


def _continued(name: str, data: int, tensor: int, policy: str) -> list[float]:
    """Return peak, seconds and collectives of a program from those of few layers; they must lie on a straight line."""
    rows: list[tuple[float, float, float]] = []
    layers, first_ones = MODELS[name].layers, getattr(MODELS[name], "dense_layers", 0)
    few = [each + first_ones + (layers - first_ones) % 2 for each in FEW_LAYERS]
    for count in few:
        graph = captured(replace(MODELS[name], layers=count), data=data, tensor=tensor, policy=policy)
        seconds = float(price(graph, PROFILE).seconds.sum())
        rows.append((_peak(graph), seconds, float((graph.ranks > 1).sum())))
    found: list[float] = []
    for first, second, third in zip(*rows, strict=True):
        if abs(third - 2 * second + first) > 1e-6 * third:
            raise SystemExit(f"{name}, {policy}: {first}, {second}, {third} lie on no straight line")
        found.append(third + (layers - few[-1]) // 2 * (third - second))
    return found


def _peak(graph: Graph) -> int:
    return lowtide.minimize(graph, allow=["share"], effort="fast").baseline_peak_bytes[graph.spaces[0].name]


def plan(file: Path, facts: dict[str, Any], checkpoints: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of one captured model: without a plan, by hand, and as planned."""
    graph, held = read_graph_file(file), facts["held"]
    space, base = graph.spaces[0].name, float(price(graph, PROFILE).seconds.sum())
    nothing = {"plan": "none", "bound": None, "least": None, "took": None, "exposed": None}
    given = communication_of(graph, Plan.baseline(graph), price(graph, PROFILE))
    rows = [
        {
            **nothing,
            "program": "as it is",
            "peak": _peak(graph) + held,
            "cost": 0.0,
            "again": 0,
            "exposed": given.exposed_seconds,
            "communication": given.seconds,
        }
    ]
    budgets = [(f"{device} GiB", device * GIB) for device in DEVICES]
    for policy, known in checkpoints.items():
        rows.append({**nothing, "program": policy, **known, "peak": known["peak"] + held})
        budgets.append((f"peak of {policy}", known["peak"] + held))
    for name, budget in budgets:
        started = time.process_time()
        try:
            result = lowtide.minimize(graph, budget=budget, allow=["reorder", "share", "recompute"], costs=PROFILE)
        except LowtideError as error:
            rows.append({"program": "as it is", "plan": f"{name}: {error}", "peak": None})
            continue
        took = time.process_time() - started
        again = result.plan.order()
        least = result.extra_cost_bound
        rows.append(
            {
                "program": "as it is",
                "plan": name if result.shortfall is None else f"{name}, not reached",
                "peak": result.peak_bytes[space] + held,
                "bound": result.lower_bound_bytes[space] + held,
                "cost": result.extra_cost / base,
                "least": None if least is None else least / base,
                "again": int((graph.ranks[again] > 1).sum()) - facts["collectives"],
                "communication": result.communication.seconds,
                "exposed": result.communication.exposed_seconds,
                "took": took,
            }
        )
    return rows


def _lines(model: str, data: int, tensor: int, facts: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        about = [model, f"{data} x {tensor}", f"{facts['ops']:,}", f"{facts['collectives']:,}"]
        about += [f"{facts['capture']:.0f} s", f"{facts['memory'] / GIB:.1f} GiB", f"{facts['held'] / GIB:.1f}"]
        told = about if not lines else [""] * len(about)
        if row["peak"] is None:
            lines.append(f"| {' | '.join([*told, row['program'], row['plan'], *[''] * 8])} |")
            continue
        bound = "" if row["bound"] is None else f"{row['bound'] / GIB:.1f}"
        least = "" if row["least"] is None else f"{row['least']:+.2%}"
        took = "" if row["took"] is None else f"{row['took']:.1f} s"
        sent = ["", ""] if row["exposed"] is None else [f"{row[name]:.2f} s" for name in ("communication", "exposed")]
        figures = [f"{row['peak'] / GIB:.1f}", bound, f"{row['cost']:+.2%}", least, str(row["again"]), *sent, took]
        lines.append(f"| {' | '.join([*told, row['program'], row['plan'], *figures])} |")
    return lines


def _in_process(part: str, model: str, data: int, tensor: int, folder: Path) -> Any:
    """Run one part of a cell in a process of its own, unless its file is there."""
    file = folder / f"{model}-{data}x{tensor}.{part}.json"
    if not file.exists():
        command = [sys.executable, __file__, "--folder", str(folder), "--part", part, model, str(data), str(tensor)]
        file.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return json.loads(file.read_text())


def main() -> None:
    """Run the cells that have no file yet, then write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/frontier"), help="where cells leave their files")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder: Path = given.folder
    if given.part:
        part, model, data, tensor = given.part
        cell = f"{model}-{data}x{tensor}"
        file = folder / f"{cell}.graph.json.gz"
        if part == "plan":
            facts, checkpoints = (json.loads((folder / f"{cell}.{known}.json").read_text()) for known in PARTS[:2])
            print(json.dumps(plan(file, facts, checkpoints)))
        else:
            work = capture if part == "capture" else by_hand
            print(json.dumps(work(model, int(data), int(tensor), file)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for cell in CELLS:
        facts, _, rows = (_in_process(part, *cell, folder) for part in PARTS)
        lines += _lines(*cell, facts, rows)
    write_section(SECTION, COMMAND, f"{LEAD}\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
