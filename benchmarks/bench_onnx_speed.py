"""Time of a run of networks of convolutions: the stock runtime at its fastest setting, and lowtide's sessions."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_onnx_session import rows_of, session_run, stock_run
from onnx_models import model_path
from results import write_section

import lowtide
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.levels import open_on_cpu, quiet_options
from lowtide.onnx import Session

MODELS = ("nasnet", "pnasnet", "unet", "hrnet", "mobilenet", "mobilenet_qdq", "detector")
ROUNDS = 25
STOCK: Mapping[str, Mapping[str, bool]] = {
    "": {},
    ", no pattern": {"enable_mem_pattern": False},
    ", no arena": {"enable_cpu_mem_arena": False, "enable_mem_pattern": False},
}


def options_of(level: str = "all", **attributes: bool) -> Any:
    """Return options for one thread."""
    options = quiet_options(level)
    options.intra_op_num_threads = 1
    for name, value in attributes.items():
        setattr(options, name, value)
    return options


def cpu_seconds(sessions: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the CPU seconds of runs by session; sessions take turns, and the first two runs do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            start = time.thread_time()
            session.run(None, inputs)
            seconds[name].append(time.thread_time() - start)
    return {name: each[2:] for name, each in seconds.items()}


def median_ratio(ours: Sequence[float], stock: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of two times."""
    return statistics.median(one / other for one, other in zip(ours, stock, strict=True))


def row(name: str, folder: Path) -> str:
    """Return the row of one model."""
    path, here, anywhere = (folder / f"{name}{ending}.onnx" for ending in ("", ".here", ".anywhere"))
    model_path(name, folder)
    planned = lowtide.optimize(path, output=here, for_this_machine=True, effort="fast", progress=False)
    lowtide.optimize(path, output=anywhere, target="lowtide-session", effort="fast", progress=False)
    stock = {
        level + setting: open_on_cpu(path, options_of(level, **attributes))
        for level in ("all", "extended")
        for setting, attributes in STOCK.items()
    }
    start = time.perf_counter()
    opened = Session(path, options_of())
    seconds_to_open = time.perf_counter() - start
    ours = {"opened": opened, "here": Session(here, options_of()), "anywhere": Session(anywhere, options_of())}
    inputs = random_inputs(load_model(path), {})
    expected = stock["all"].run(None, inputs)
    found = cpu_seconds({**stock, **ours}, inputs)
    fastest = min(stock, key=lambda setting: statistics.median(found[setting]))
    growth = {setting: stock_run(path, setting).growth_bytes or 0 for setting in ("all", "all, arena as asked")}
    session = session_run(here)
    results = ours["here"].run(None, inputs)
    same = all(one.tobytes() == other.tobytes() for one, other in zip(results, expected, strict=True))
    figures = [
        f"{1e3 * min(found[fastest]):.1f} ({fastest})",
        *(f"{1e3 * min(found[way]):.1f}, {median_ratio(found[way], found[fastest]):.2f}" for way in ours),
        f"{seconds_to_open:.2f}",
        f"{sum(planned.result.peak_bytes.values()) / 1e6:.1f}",
        f"{(session.growth_bytes or 0) / 1e6:.1f}",
        f"{growth['all'] / 1e6:.1f}",
        f"{min(growth.values()) / 1e6:.1f}",
        "yes" if same else "NO",
    ]
    return f"| {name} | {' | '.join(figures)} |"


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    rows, are_all = rows_of(MODELS, row)
    head = (
        "| model | stock ms, fastest | opened | for this machine | for any machine | s to open | predicted | "
        "session | stock | stock, least | same bits |"
    )
    note = (
        f"One thread. Milliseconds are the least CPU time of {ROUNDS} runs in one process, where all ways take turns. "
        "Behind them, the median ratio of a round to the stock runtime's fastest setting: levels all and extended, "
        "with and without pattern and arena. opened: a session of the unplanned model; s to open it. for this machine, "
        "for any machine: files by lowtide optimize with and without --for-this-machine. Megabytes (10^6): the plan's "
        "peak with inputs; the growth of resident memory in the session of the file for this machine, in the stock "
        "runtime at level all, and there with an arena that grows as asked. same bits: as the stock "
        "runtime at level all."
    )
    table = "\n".join([note, "", head, "|---|" + "--:|" * 10, *rows])
    if are_all:
        write_section("ONNX Runtime speed", "python benchmarks/bench_onnx_speed.py", table)


if __name__ == "__main__":
    main()
