"""Resident memory of thirteen ONNX models and of the same models after onnxslim: the stock runtime, lowtide's session.

Needs `pip install onnxslim`.
"""

from importlib.metadata import version
from pathlib import Path

import onnx
from bench_onnx_session import THREADS, rows_of
from onnx_models import MODELS, model_path
from results import table_head, write_section

import lowtide
from lowtide.frameworks.onnx.running.children import measure_in_child
from lowtide.onnx import OnnxModel

RUNS = 4
LEVEL = "all"


def growths(path: Path) -> list[str]:
    """Return the resident memory that runs add, in megabytes: in the stock runtime, and in lowtide's session."""
    model, planned = OnnxModel(path).optimized(LEVEL), path.with_suffix(".planned.onnx")
    model.save(lowtide.plan(model.graph).plan, planned)
    stock = measure_in_child(path, {}, planned=False, level=LEVEL, runs=RUNS, threads=THREADS)
    session = measure_in_child(planned, {}, planned=True, runs=RUNS, threads=THREADS)
    return [f"{(run.growth_bytes or 0) / 1e6:.1f}" for run in (stock, session)]


def row(name: str, folder: Path) -> str:
    """Return the row of one model."""
    import onnxslim

    path, slimmed = model_path(name, folder), folder / f"{name}.slim.onnx"
    onnx.save_model(onnxslim.slim(onnx.load_model(path)), slimmed)
    nodes = [str(len(onnx.load_model(file, load_external_data=False).graph.node)) for file in (path, slimmed)]
    (stock, session), (stock_slimmed, session_slimmed) = growths(path), growths(slimmed)
    return f"| {' | '.join([name, *nodes, stock, stock_slimmed, session, session_slimmed])} |"


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    rows, are_all = rows_of(list(MODELS), row)
    note = (
        f"onnxslim {version('onnxslim')}. Megabytes (10^6) that {RUNS} runs add to resident memory, code and weights "
        f"apart, {THREADS} thread, every figure from a process of its own, with all optimizations of the runtime."
    )
    names = ("model", "nodes", "after onnxslim", "stock", "stock, slimmed", "session", "session, slimmed")
    table = "\n".join([note, "", *table_head(names), *rows])
    if are_all:
        write_section("ONNX models after onnxslim", "python benchmarks/bench_onnx_slim.py", table)


if __name__ == "__main__":
    main()
