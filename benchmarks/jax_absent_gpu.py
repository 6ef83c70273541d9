"""A transformer's training step in JAX, compiled for a GPU that is not there: XLA's memory figures, no times."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
from jax_gpu import LARGE
from jax_programs import Step, transformer
from results import table_head, write_section

import lowtide.jax
from lowtide.engine.costs.devices import devices

MIB = 2**20
DEVICE = "h100"
_SCHEDULED = 0.95
"""Share of a GPU's memory that XLA's rematerialization fills."""


def _donating(step: Step) -> Callable[..., Any]:
    return jax.jit(step.function, donate_argnums=(0, 1))


def _unmodified(step: Step, device: str = DEVICE) -> Any:
    return lowtide.jax.measure_compiled(_donating(step), step.arguments, device=device).figures


def _rematerialized(step: Step, total_bytes: int) -> Any:
    """Return the figures on a device with so little memory that XLA recomputes to need less."""
    small = {**msgspec.to_builtins(devices()[DEVICE]), "memory_bytes": int(total_bytes / _SCHEDULED)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.json"
        path.write_text(json.dumps(small))
        return _unmodified(step, str(path))


def rows() -> Iterator[str]:
    """Yield the rows of the table, each when it is compiled."""
    step = transformer(**LARGE)
    plain = _unmodified(step)
    yield _row("`jit`", plain)
    checkpoints = _unmodified(transformer(**LARGE, wrap=jax.checkpoint))
    yield _row("`jax.checkpoint`, every block", checkpoints)
    yield _row("XLA's rematerialization, 50 %", _rematerialized(step, plain.total_bytes - plain.temp_bytes // 2))
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(step.arguments[1]))
    budgets = (
        ("lowtide, 50 %", "50%", False),
        ("lowtide, at the temp bytes of checkpoints", checkpoints.temp_bytes, True),
        (
            "lowtide, at the total of checkpoints less half of the state",
            checkpoints.total_bytes - state_bytes // 2,
            False,
        ),
    )
    for name, budget, transient in budgets:
        fitted = lowtide.jax.fit(
            _donating(step),
            budget,
            example_args=step.arguments,
            allow=("reorder", "share", "recompute", "offload"),
            transient=transient,
            device=DEVICE,
        )
        yield _row(f"{name}{'' if fitted.fits else ' (missed)'}", fitted.found.best.figures, fitted)


def _row(way: str, figures: Any, fitted: Any = None) -> str:
    result = None if fitted is None else fitted.result
    more = "" if result is None else f"{100 * result.extra_cost / result.base_cost:.1f}"
    moved = 0 if fitted is None else fitted.state_on_host_bytes
    cells = (figures.temp_bytes, figures.total_bytes, moved)
    row = f"| {way} | {' | '.join(f'{each / MIB:,.0f}' for each in cells)} | {more} |"
    print(row, flush=True)
    return row


def main() -> None:
    """Compile every way and write the section."""
    head = table_head(["way", "temporaries, MiB", "in total, MiB", "state on host, MiB", "recomputed, %"], n_texts=1)
    lead = (
        f"A training step with AdamW compiled by XLA for an {DEVICE.upper()} without one: 12 layers of width 1,024, "
        "8 x 1,024 tokens, 32,768 classes, float32, weights and state donated. Figures are XLA's; the recomputed share "
        "is lowtide's estimate by the device's speeds. Nothing was run."
    )
    write_section(
        "JAX on a GPU that is not there", "python benchmarks/jax_absent_gpu.py", "\n".join([lead, "", *head, *rows()])
    )


if __name__ == "__main__":
    main()
