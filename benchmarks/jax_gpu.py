"""A transformer's training step in JAX on a GPU: memory and time of `fit`, `jax.checkpoint` and XLA's own remat."""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from results import table_head, write_section
from side_by_side import RowCommand, measure_rows, wait_for_turn

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
from jax_programs import Step, transformer

import lowtide.jax

MIB = 2**20
TIMED_STEPS = 10
LARGE = {"layers": 12, "width": 1024, "batch": 8, "length": 1024, "vocabulary": 32_768}
UNMODIFIED, CHECKPOINTS = "jit", "jax.checkpoint, every block"
XLA_HALF, HALF, WITHIN = "XLA's rematerialization, 50 %", "lowtide, 50 %", "lowtide, at the temp bytes of checkpoints"
WAYS = (UNMODIFIED, CHECKPOINTS, XLA_HALF, HALF, WITHIN)


def _compiled(step: Step) -> tuple[Callable[..., Any], int]:
    executable = jax.jit(step.function, donate_argnums=(0, 1)).lower(*step.arguments).compile()
    return executable, executable.memory_analysis().temp_size_in_bytes


def _fitted(step: Step, budget: str | int) -> tuple[Callable[..., Any], int]:
    donating = jax.jit(step.function, donate_argnums=(0, 1))
    transient = isinstance(budget, int)
    fitted = lowtide.jax.fit(donating, budget, example_args=step.arguments, transient=transient, progress=False)
    return fitted, fitted.temp_bytes


def measured_row(way: str, sizes: Mapping[str, int], budget: int) -> dict[str, Any]:
    """Return temp bytes, peak and times of one way to run the step."""
    wrap: Any = jax.checkpoint if way == CHECKPOINTS else lambda function: function
    step = transformer(**sizes, wrap=wrap)
    started = time.perf_counter()
    if way == HALF:
        call, temp = _fitted(step, "50%")
    elif way == WITHIN:
        call, temp = _fitted(step, budget)
    else:
        call, temp = _compiled(step)
    weights, state, *batch = step.arguments
    del step
    weights, state, loss = call(weights, state, *batch)
    float(loss)
    first = time.perf_counter() - started
    wait_for_turn()
    seconds: list[float] = []
    for _ in range(TIMED_STEPS):
        begun = time.perf_counter()
        weights, state, loss = call(weights, state, *batch)
        jax.block_until_ready((weights, state, loss))
        seconds.append(time.perf_counter() - begun)
    stats = jax.local_devices()[0].memory_stats() or {}
    return {
        "way": way,
        "temp_bytes": temp,
        "held_bytes": sum(each.nbytes for each in jax.tree.leaves((weights, state, batch))),
        "peak_bytes": stats.get("peak_bytes_in_use", 0),
        "seconds": median(seconds),
        "first_call_seconds": first,
        "loss": float(loss),
        "limit_bytes": stats.get("bytes_limit", 0),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every way and write the section if the device is a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tiny model, to see that everything runs")
    parser.add_argument("--workers", type=int, default=1, help="rows that compile side by side")
    parser.add_argument("--folder", type=Path, default=Path("build/jax_gpu"), help="where rows are kept")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sizes: Mapping[str, int] = {} if given.small else LARGE
    if given.row:
        print(json.dumps(measured_row(given.row, sizes, given.budget)))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    files = {way: given.folder / f"{way}.json" for way in WAYS}
    more = [__file__, *(["--small"] if given.small else [])]
    measure = partial(measure_rows, workers=given.workers)
    measure([RowCommand([*more, "--row", way], files[way], {}) for way in (UNMODIFIED, CHECKPOINTS, HALF)])
    rows = {way: json.loads(files[way].read_text()) for way in (UNMODIFIED, CHECKPOINTS, HALF)}
    budget = rows[CHECKPOINTS].get("temp_bytes", 0)
    measure(
        [
            RowCommand([*more, "--row", WITHIN, "--budget", str(budget)], files[WITHIN], {}),
            RowCommand([*more, "--row", XLA_HALF], files[XLA_HALF], _with_half_the_memory(rows[UNMODIFIED])),
        ]
    )
    table = table_head(
        ["way", "temporaries, MiB", "measured peak, MiB", "step, ms", "first call, s", "loss"], n_texts=1
    )
    for way in WAYS:
        row = json.loads(files[way].read_text())
        if "error" in row:
            table.append(f"| {way}: {row['error']} | | | | | |")
            continue
        table.append(
            f"| {way} | {row['temp_bytes'] / MIB:,.0f} | {row['peak_bytes'] / MIB:,.0f} | "
            f"{1e3 * row['seconds']:.1f} | {row['first_call_seconds']:.0f} | {row['loss']:.6f} |"
        )
    print("\n".join(table))
    if jax.default_backend() == "gpu" and not given.small:
        write_section("JAX on a GPU", "python benchmarks/jax_gpu.py", "\n".join([_lead(), "", *table]))


def _with_half_the_memory(unmodified: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the environment in which XLA has half of the temporaries of the unmodified step besides what it holds."""
    limit = unmodified.get("limit_bytes", 0)
    if not limit:
        return {}
    target = unmodified["held_bytes"] + unmodified["temp_bytes"] // 2
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.75 * target / limit:.6f}"}


def _lead() -> str:
    return (
        f"A training step with AdamW on one {jax.devices()[0].device_kind}: 12 layers of width 1,024, 8 x 1,024 "
        "tokens, 32,768 classes, float32, weights and state donated. Temporaries are XLA's figure; the measured peak "
        "is `peak_bytes_in_use` of the process, weights and state included."
    )


if __name__ == "__main__":
    main()
