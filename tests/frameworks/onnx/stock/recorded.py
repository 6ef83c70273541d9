"""What the stock runtime asks an allocator for, run by run, and what its arena would make of that."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from lowtide.frameworks.arena.allocator import Arena, ArenaRun, native_allocator
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.levels import LEVELS
from lowtide.frameworks.onnx.stock.arena import StockArena


def recorded(path: Path, *, pattern: bool, runs: int = 3, level: str = "none") -> list[Any]:
    """Return rows of bytes, made and freed of the blocks of each run of a stock session."""
    allocator = native_allocator()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.enable_mem_pattern, options.enable_cpu_mem_arena = pattern, False
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.register_custom_ops_library(str(allocator.path))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = random_inputs(load_model(path), {})
    found: list[Any] = []
    for _ in range(runs):
        run = ArenaRun(Arena(allocator), None)
        results = session.run(None, inputs)
        report = run.end()
        del results
        found.append(run.recorded(report.allocations))
    return found


def resident_of(runs: Sequence[Any]) -> int:
    """Return what an arena of the stock runtime has resident after these runs, their results let go of."""
    arena = StockArena()
    for rows in runs:
        events = [(made, place, True) for place, (_, made, _) in enumerate(rows.tolist())]
        events += [(freed, place, False) for place, (_, _, freed) in enumerate(rows.tolist()) if freed >= 0]
        live: dict[int, Any] = {}
        for _, place, is_made in sorted(events):
            if is_made:
                live[place] = arena.allocate(int(rows[place, 0]))
            else:
                arena.release(live.pop(place))
        for chunk in live.values():
            arena.release(chunk)
    return arena.resident_bytes
