"""Resident memory and time of thirteen ONNX models: the stock runtime at every setting, and lowtide's session."""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_models import MODELS, model_path
from results import write_section

import lowtide
from lowtide.engine.graph import Lifetime
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.onnx.running.children import RuntimeFigures, measure_in_child
from lowtide.frameworks.onnx.running.levels import LEVELS
from lowtide.onnx import OnnxModel

THREADS = 1
RUNS = 12
ROUNDS = 3
SAME_SPEED = 1.03
SMALL = PlanSettings(budget="50%", techniques=frozenset({"reorder", "share", "recompute"}))
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    ", no pattern": {"options": {"enable_mem_pattern": False}},
    ", arena as asked": {"options": {"enable_mem_pattern": False}, "arena_grows_as_asked": True},
    ", no arena": {"options": {"enable_cpu_mem_arena": False, "enable_mem_pattern": False}},
}


def stock_run(path: Path, setting: str) -> RuntimeFigures:
    """Run a model in the stock runtime at a setting: a level, and what is named behind it."""
    level, comma, rest = setting.partition(",")
    how = SETTINGS[comma + rest]
    return measure_in_child(path, {}, planned=False, level=level, runs=RUNS, threads=THREADS, **how)


def session_run(path: Path) -> RuntimeFigures:
    """Run a planned model in lowtide's session."""
    return measure_in_child(path, {}, planned=True, runs=RUNS, threads=THREADS)


def in_turns(*ways: Callable[[], RuntimeFigures]) -> list[float]:
    """Return the least seconds of several ways to run; they take turns, so that whatever else runs meets all."""
    rounds = [[way().seconds for way in ways] for _ in range(ROUNDS)]
    return [min(seconds) for seconds in zip(*rounds, strict=True)]


def row(name: str, folder: Path) -> str:
    """Return the row of one model."""
    path, planned, small = (model_path(name, folder), folder / f"{name}.planned.onnx", folder / f"{name}.small.onnx")
    stock = {level + setting: stock_run(path, level + setting) for level in LEVELS for setting in SETTINGS}
    fastest = min(stock, key=lambda setting: stock[setting].seconds)
    at_all, least_seconds = in_turns(lambda: stock_run(path, "all"), lambda: stock_run(path, fastest))
    level = "all" if at_all <= SAME_SPEED * least_seconds else fastest.split(",")[0]
    model = OnnxModel(path).optimized(level)
    graph, result = model.graph, lowtide.minimize(model.graph)
    model.save(result.plan, planned)
    inputs = sum(int(graph.sizes[b]) for b in range(graph.n_buffers) if graph.lifetimes[b] == Lifetime.INPUT)
    predicted = sum(result.peak_bytes.values()) - inputs
    session = session_run(planned)
    seconds, stock_seconds = in_turns(lambda: session_run(planned), lambda: stock_run(path, fastest))
    model.save(plan_best_form(model, SMALL).plan, small)
    smaller = session_run(small)
    growths = {setting: run.growth_bytes or 0 for setting, run in stock.items()}
    least = min(growths, key=growths.__getitem__)
    whole = [
        measure_in_child(file, {}, planned=file is planned, level=level, runs=RUNS, threads=THREADS, as_it_comes=True)
        for file in (planned, path)
    ]
    modeled = model.runtime_peaks(result.plan).before_resident_bytes
    same_bits = {run.digest for run in (session, smaller)} == {stock[level].digest}
    figures = [
        level,
        f"{predicted / 1e6:.1f}",
        f"{(session.reserved_bytes or 0) / 1e6:.1f}",
        f"{(session.growth_bytes or 0) / 1e6:.1f}",
        f"{growths[level] / 1e6:.1f}",
        f"{modeled / 1e6:.1f}",
        f"{growths[least] / 1e6:.1f} ({least})",
        f"{growths[least] / max(1, session.growth_bytes or 1):.2f}",
        f"{1e3 * seconds:.1f}",
        f"{1e3 * stock_seconds:.1f} ({fastest})",
        f"{(smaller.growth_bytes or 0) / 1e6:.1f}, {1e3 * smaller.seconds:.1f} ms",
        " / ".join(f"{(run.resident_bytes or 0) / 1e6:.0f}" for run in whole),
        "yes" if same_bits else "NO",
        str(session.fallbacks + smaller.fallbacks),
    ]
    return f"| {name} | {graph.n_ops} | {' | '.join(figures)} |"


def rows_of(models: Sequence[str], row_of: Callable[[str, Path], str]) -> tuple[list[str], bool]:
    """Print and return the rows of the models on the command line, by default all, and whether these are all.

    Rows in a `--kept` file are taken from there and new ones are added as they come, so that a run can be continued.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, help="where models are kept; by default they are written anew")
    parser.add_argument("--kept", type=Path, help="a file of rows by model; remove it after a change of the code")
    parser.add_argument("models", nargs="*", default=list(models))
    given = parser.parse_args()
    kept: dict[str, str] = json.loads(given.kept.read_text()) if given.kept and given.kept.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.models:
            if name not in kept:
                kept[name] = row_of(name, given.folder or Path(temporary))
                if given.kept:
                    given.kept.write_text(json.dumps(kept))
            print(kept[name], flush=True)
    return [kept[name] for name in models if name in kept], kept.keys() >= set(models)


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    rows, are_all = rows_of(MODELS, row)
    head = (
        "| model | ops | level | predicted | needed | session | stock | stock, modeled | stock, least | ratio | "
        "session ms | stock ms, fastest | at 50 % | resident, session / stock | same bits | fallbacks |"
    )
    note = (
        f"Megabytes (10^6), {THREADS} thread, {RUNS} runs, every figure from a process of its own. predicted: "
        "the plan's peak without inputs. needed: the session's arena, and results outside of it. session, stock: the "
        "most that runs add to resident memory, code apart. stock, modeled: what lowtide predicts of its order, reuse, "
        "pattern and arena. stock, least: the best of all levels, each at the default settings, without pattern, with "
        "an arena that grows as asked, and without arena. ratio: that over the session's. level: of the planned file: "
        "all, unless the stock runtime is more than 3 % faster at another. ms: of a run, the least median of "
        f"{ROUNDS} processes; stock at its fastest setting and the session take turns. at 50 %: growth and time of the "
        "model planned with --budget 50%, in chunks and with reruns where that helps; the least where it is not met. "
        "resident: the whole process, with code, weights and inputs. same bits: as the stock runtime at that level."
    )
    table = "\n".join([note, "", head, "|---|" + "--:|" * 15, *rows])
    if are_all:
        write_section("ONNX Runtime sessions", "python benchmarks/bench_onnx_session.py", table)


if __name__ == "__main__":
    main()
