"""Peaks of Mesh-TensorFlow's own models in its orders and in the best ones, as recorded from the real scheduler."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import write_section

sys.path.append(str(Path(__file__).parents[1]))  # the records are read by what the tests read them with

from lowtide.mesh_tensorflow import MeshTensorflowModel, minimize_peak_memory, plan
from tests.frameworks.mesh_tensorflow.interfaces import of_model_record, records

RECORDS = "mesh_tensorflow_models.json.gz"
"""Made by tests/oracles/record_mesh_models.py, which needs TensorFlow."""
ON_DEVICE: dict[str, Mapping[str, Any]] = {
    "partial_layout": {"batch": "rows", "heads": "columns", "d_ff": "columns", "vocab": "columns"},
    "mesh_dimension_to_size": {"rows": 4, "columns": 2},
}


def row(record: Mapping[str, Any], layout: Mapping[str, Any]) -> str:
    """Return the row of one model, whole or on one device."""
    interface = of_model_record(record)
    model = MeshTensorflowModel(interface, **layout)
    started = time.perf_counter()
    ids, result = plan(interface, **layout)
    seconds = time.perf_counter() - started
    figures = (
        record["naive_peaks"][1 if layout else 0],
        record["list_peaks"][1 if layout else 0],
        model.peak_bytes(minimize_peak_memory(interface, "LIST", **layout)),
        model.peak_bytes(ids),
        result.lower_bound_bytes["device"],
    )
    where = "one device of 4 x 2" if layout else "whole"
    return (
        f"| {record['model']} | {where} | {len(record['ops'])} | {' | '.join(f'{figure:,}' for figure in figures)} "
        f"| {seconds:.1f} |"
    )


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    lines = [
        "Bytes live at once. NAIVE and LIST are the orders of Mesh-TensorFlow 0.1.21, which knows no layouts, and",
        "their peaks as its GraphInterface counts them. lowtide's LIST is never above on the same sizes. The best is",
        "that of `lowtide.mesh_tensorflow.plan`. The models are 64 wide, on 8 sequences of 32 tokens, with 256 words;",
        "ratios are what matters.",
        "",
        "| model | sizes | ops | NAIVE | LIST | lowtide, LIST | lowtide, best | bound | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
        *(row(record, layout) for record in records(RECORDS) for layout in ({}, ON_DEVICE)),
    ]
    print("\n".join(lines))
    write_section("Mesh-TensorFlow schedules", "python benchmarks/bench_mesh_tensorflow.py", "\n".join(lines))


if __name__ == "__main__":
    main()
