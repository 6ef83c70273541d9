"""XLA's own schedules beside lowtide's, under one memory model, on compiled JAX programs; and 50,000 instructions.

`python benchmarks/bench_xla.py` needs the extra jax. Programs are compiled for the CPU, with random shapes and no data.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from results import write_section
from xla_programs import PROGRAMS, large_module

from lowtide.xla import XlaModel, against_assignment, parse_module, schedule, verify_schedule

MEMORY_OPTIMIZED = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
SETTINGS: dict[str, dict[str, str]] = {"default": {}, "memory": MEMORY_OPTIMIZED}
LARGE = 50_000
_READ_PLAN_WRITE = """
import resource, sys, time
import lowtide, lowtide.xla
started, used = time.perf_counter(), time.process_time()
model = lowtide.xla.XlaModel(sys.argv[1])
result = lowtide.minimize(model.graph, effort=sys.argv[3])
model.save(result.plan, __import__("pathlib").Path(sys.argv[2]))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(time.process_time() - used, time.perf_counter() - started, memory)
"""


def row(name: str, function: Any, args: Any, setting: str) -> tuple[str, float]:
    """Return the row of a program under one of XLA's schedulers, and our peak as a part of XLA's."""
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), args)
    compiled = jax.jit(function).lower(*shapes).compile(compiler_options=dict(SETTINGS[setting]))
    reserved = against_assignment(compiled)
    model = XlaModel(compiled)
    started = time.perf_counter()
    found = schedule(model.module)
    seconds = time.perf_counter() - started
    verify_schedule(found.module, model.module)
    given, best = found.peaks["given"], min(found.peaks.values())
    assert best <= given
    assert given <= reserved.reserved_bytes
    loops = sum(
        instruction.opcode == "while" for part in model.module.computations for instruction in part.instructions
    )
    figures = (
        f"{sum(len(part.instructions) for part in model.module.computations):,}",
        f"{loops}",
        f"{reserved.reserved_bytes:,}",
        f"{reserved.temporary_bytes:,}",
        f"{given:,}",
        f"{found.peaks['xla-list']:,}",
        f"{found.peaks['xla-dfs']:,}",
        f"{best:,}",
        f"{best / given:.3f}",
        f"{seconds:.1f}",
    )
    return f"| {name} | {setting} | {' | '.join(figures)} |", best / given


def large_row(effort: str) -> str:
    """Return what reading, planning and writing a large module takes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "large.hlo"), Path(folder, "planned.hlo")
        path.write_text(large_module(LARGE), encoding="utf-8")
        module = parse_module(path.read_text(encoding="utf-8"))
        count = sum(len(part.instructions) for part in module.computations)
        command = [sys.executable, "-c", _READ_PLAN_WRITE, str(path), str(out), effort]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
        used, seconds, peak = map(float, run.stdout.split())
        verify_schedule(parse_module(out.read_text(encoding="utf-8")), module)
    return (
        f"- {count:,} instructions read, planned with effort {effort} and written: {used:.1f} s of processor time, "
        f"{seconds:.1f} s by the clock of a machine that others use, too; {peak / 2**20:,.0f} MiB resident at most."
    )


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    made = [row(name, *make(jnp.float32), setting) for name, make in PROGRAMS.items() for setting in SETTINGS]
    ratios = [ratio for _, ratio in made]
    lines = [
        "Modules as XLA's CPU compiler leaves them, with its default schedule and with its memory-optimized one.",
        "Reserved and temporary: XLA's own bytes, by its buffer assignment. From `XLA's order` on, peaks under one",
        "memory model, in-place pairs taken: the order of the compiled module, XLA's list and depth-first orders, and",
        "the best that `lowtide.xla.schedule` found, with its part of XLA's order. Bytes; seconds of planning.",
        f"Never worse than XLA's order; better on {sum(ratio < 1 for ratio in ratios)} of {len(ratios)}, the best "
        f"{min(ratios):.3f} of it.",
        "",
        "| program | XLA's scheduler | instructions | loops | reserved | temporary | XLA's order | xla-list | xla-dfs "
        "| ours | part | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(line for line, _ in made),
        "",
        large_row("fast"),
        large_row("balanced"),
    ]
    print("\n".join(lines))
    write_section("XLA modules", "python benchmarks/bench_xla.py", "\n".join(lines))


if __name__ == "__main__":
    main()
