"""Resident memory and time of thirteen ONNX models: the stock runtime at every setting, and lowtide's session."""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx_models import MODELS, model_path
from results import write_section

import lowtide
from lowtide.frameworks.onnx.running.children import RuntimeFigures, measure_in_child
from lowtide.frameworks.onnx.running.levels import LEVELS
from lowtide.graph import Lifetime
from lowtide.onnx import OnnxModel

THREADS = 1
RUNS = 12
SAME_SPEED = 1.03
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "no pattern": {"options": {"enable_mem_pattern": False}},
    "arena as asked": {"options": {"enable_mem_pattern": False}, "arena_grows_as_asked": True},
    "no arena": {"options": {"enable_cpu_mem_arena": False, "enable_mem_pattern": False}},
}


def stock_runs(path: Path) -> dict[str, RuntimeFigures]:
    """Run a model in the stock runtime at all levels, and at the highest with every other setting."""
    runs = {
        level: measure_in_child(path, {}, planned=False, level=level, runs=RUNS, threads=THREADS) for level in LEVELS
    }
    for name, how in list(SETTINGS.items())[1:]:
        runs[f"all, {name}"] = measure_in_child(path, {}, planned=False, runs=RUNS, threads=THREADS, **how)
    return runs


def row(name: str, folder: Path) -> str:
    """Return the row of one model."""
    path, planned = model_path(name, folder), folder / f"{name}.planned.onnx"
    stock = stock_runs(path)
    fastest = min(stock, key=lambda setting: stock[setting].seconds)
    level = "all" if stock["all"].seconds <= SAME_SPEED * stock[fastest].seconds else fastest.split(",")[0]
    model = OnnxModel(path).optimized(level)
    result = lowtide.minimize(model.graph)
    model.save(result.plan, planned)
    graph = model.graph
    inputs = sum(int(graph.sizes[b]) for b in range(graph.n_buffers) if graph.lifetimes[b] == Lifetime.INPUT)
    predicted = sum(result.peak_bytes.values()) - inputs
    session = measure_in_child(planned, {}, planned=True, runs=RUNS, threads=THREADS)
    again = measure_in_child(planned, {}, planned=True, runs=RUNS, threads=THREADS)
    growths = {setting: run.growth_bytes or 0 for setting, run in stock.items()}
    least = min(growths, key=growths.__getitem__)
    whole = [
        measure_in_child(file, {}, planned=file is planned, level=level, runs=RUNS, threads=THREADS, as_it_comes=True)
        for file in (planned, path)
    ]
    modeled = model.runtime_peaks(result.plan).before_resident_bytes
    figures = [
        level,
        f"{predicted / 1e6:.1f}",
        f"{(session.arena_bytes or 0) / 1e6:.1f}",
        f"{(session.reserved_bytes or 0) / 1e6:.1f}",
        f"{(session.growth_bytes or 0) / 1e6:.1f}",
        f"{growths[level] / 1e6:.1f}",
        f"{modeled / 1e6:.1f}",
        f"{growths[least] / 1e6:.1f} ({least})",
        f"{growths[least] / max(1, session.growth_bytes or 1):.2f}",
        f"{1e3 * min(session.seconds, again.seconds):.1f}",
        f"{1e3 * stock[fastest].seconds:.1f} ({fastest})",
        " / ".join(f"{(run.resident_bytes or 0) / 1e6:.0f}" for run in whole),
        "yes" if session.digest == stock[level].digest else "NO",
        str(session.fallbacks),
    ]
    return f"| {name} | {graph.n_ops} | {' | '.join(figures)} |"


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, help="where models are kept; by default they are written anew")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows: list[str] = []
        for name in given.models:
            rows.append(row(name, given.folder or Path(temporary)))
            print(rows[-1], flush=True)
    head = (
        "| model | ops | level | predicted | arena | and results | session | stock | stock, modeled | stock, least | "
        "ratio | session ms | stock ms, fastest | resident, session / stock | same bits | fallbacks |"
    )
    note = (
        f"Megabytes (10^6), {THREADS} thread, {RUNS} runs, every figure from a process of its own. predicted: "
        "the plan's peak without inputs. arena: the session's; results lie in pages that it lends, or outside of it. "
        "session, stock: the most that runs add to resident memory, code apart. stock, modeled: what lowtide predicts "
        "of its order, reuse, pattern and arena. stock, least: the best of all levels, and of the highest without "
        "pattern, with an arena that grows as asked, and without arena. ratio: that over the session's. level: of the "
        "planned file, all, unless the stock runtime is more than 3 % faster at another. resident: the whole process, "
        "with code, weights and inputs. same bits: as the stock runtime at that level."
    )
    table = "\n".join([note, "", head, "|---|" + "--:|" * 15, *rows])
    if given.models == list(MODELS):
        write_section("ONNX Runtime sessions", "python benchmarks/bench_onnx_session.py", table)


if __name__ == "__main__":
    main()
