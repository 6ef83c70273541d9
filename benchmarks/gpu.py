"""Training steps on a GPU in under ten minutes: lowtide, with offload as well, torch's own budget, checkpointing."""

import argparse
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from measured_models import FULL, MODELS, TINY, MeasuredModel
from results import table_head, write_section
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

from lowtide.core.units import format_bytes
from lowtide.torch import MeasuredStep, measure

SHOWN = ("GPT-2", "ResNet-50", "Llama-style")
"""In this order, as far as the time goes."""
SHARE = 0.5
ACTIVATION_BUDGETS = (0.6, 0.4, 0.2)
LAST_START = 330.0
"""No model is begun after so many seconds; one takes one to three minutes, nearly all of it compiling."""


@dataclass(frozen=True)
class Row:
    """One way to run a model's step."""

    model: str
    way: str
    measured: MeasuredStep
    compiling_seconds: float

    def line(self, baseline: "Row") -> str:
        """The row of the table; peaks and times beside those of the compiler alone."""
        predicted = self.measured.predicted_peak_bytes
        peak, least = self.measured.measured_peak_bytes, baseline.measured.measured_peak_bytes
        seconds = self.measured.median_seconds
        cells = [
            self.model,
            self.way,
            "" if predicted is None else format_bytes(predicted),
            format_bytes(peak),
            f"{peak / least:.1%}",
            f"{seconds * 1e3:.1f}",
            f"{seconds / baseline.measured.median_seconds - 1:+.1%}",
            f"{self.compiling_seconds:.0f}",
        ]
        return f"| {' | '.join(cells)} |"


class Bench:
    """One model on one device, run in every way."""

    def __init__(self, model: MeasuredModel, device: torch.device, compiler: str, small: bool) -> None:
        torch.manual_seed(0)
        module, batch = model.make(TINY if small else FULL)
        self.model = model
        self.device = device
        self.module = module.to(device).train()
        self.batch = tuple(tensor.to(device) for tensor in batch)
        self.compiler = compiler
        self.timed_calls = 1 if small else 10
        self.settings = ACTIVATION_BUDGETS[-1:] if small else ACTIVATION_BUDGETS

    def rows(self) -> Iterator[Row]:
        """Run every way; the compiler alone comes first."""
        plain = "inductor" if self.compiler == "inductor" else "aot_eager"
        baseline = self._row(plain, self._compiled(plain))
        yield baseline
        yield self._row("eager", self.module)
        blocks = self.model.block_list(self.module)
        if blocks:
            with checkpointed(blocks):
                yield self._row("eager, every block checkpointed", self.module)
        held = sum(tensor.nbytes for tensor in [*self.module.parameters(), *self.module.buffers()])
        budget = int(baseline.measured.measured_peak_bytes * SHARE) + held
        options = {"compiler": self.compiler, "budget": budget}
        ours = self._row(f"lowtide at {SHARE:.0%}", self._compiled("lowtide", options=options))
        yield ours
        if self.device.type == "cuda":  # elsewhere copies are no faster than running again
            offloading = {**options, "allow": ["reorder", "recompute", "offload"]}
            yield self._row(f"lowtide at {SHARE:.0%}, with offload", self._compiled("lowtide", options=offloading))
            rounding = {"compiler": "eager", "budget": budget, "allow": ["reorder", "share", "recompute", "rounding"]}
            way = f"lowtide at {SHARE:.0%}, op by op, with rounding"
            yield self._row(way, self._compiled("lowtide", options=rounding))
        yield self._torch_within(plain, ours.measured.measured_peak_bytes)

    def _torch_within(self, backend: str, peak_bytes: int) -> Row:
        """Return the fastest of torch's own plans within a peak, or the one of least peak where none is."""
        found: list[Row] = []
        for setting in self.settings:
            with functorch_config.patch(activation_memory_budget=setting):
                found.append(self._row(f"torch's own budget {setting}", self._compiled(backend)))
        within = [row for row in found if row.measured.measured_peak_bytes <= peak_bytes]
        if within:
            return min(within, key=lambda row: row.measured.median_seconds)
        return min(found, key=lambda row: row.measured.measured_peak_bytes)

    def _compiled(self, backend: str, **more: Any) -> Callable[..., Any]:
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        return torch.compile(self.module, backend=backend, dynamic=False, **more)

    def _row(self, way: str, call: Callable[..., Any]) -> Row:
        def step(*batch: torch.Tensor) -> None:
            call(*batch).backward()

        started = time.perf_counter()
        step(*self.batch)  # compiles
        compiling = time.perf_counter() - started
        measured = measure(step, *self.batch, state=[self.module], timed_calls=self.timed_calls)
        return Row(self.model.name, way, measured, compiling)


@contextmanager
def checkpointed(blocks: Sequence[nn.Module]) -> Generator[None]:
    """Run every block again in the backward pass, as `torch.utils.checkpoint` does."""
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Measure, print, and write the section into RESULTS.md when it ran on a GPU; returns the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that everything runs")
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--compiler", choices=("inductor", "eager"), default="inductor")
    chosen = parser.parse_args(arguments)
    device = torch.device(chosen.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is there; to see that everything runs: --device cpu --small --compiler eager")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("high")
    head = ["model", "way", "predicted", "measured peak", "of the compiler's", "step, ms", "slower", "first call, s"]
    table = table_head(head, n_texts=2)
    print("\n".join(table), flush=True)
    started = time.perf_counter()
    by_name = {model.name: model for model in MODELS}
    for name in SHOWN:
        late = time.perf_counter() - started > LAST_START
        if late or (chosen.only is not None and chosen.only not in name):
            continue
        baseline: Row | None = None
        for row in Bench(by_name[name], device, chosen.compiler, chosen.small).rows():
            baseline = baseline or row
            table.append(row.line(baseline))
            print(table[-1], flush=True)
    if device.type == "cuda" and not chosen.small and chosen.only is None:
        lead = (
            f"On one {torch.cuda.get_device_name(device)}: peaks by the caching allocator's statistics, weights apart, "
            "median step times. torch's own budget: the fastest of the settings "
            f"{', '.join(map(str, ACTIVATION_BUDGETS))} within lowtide's measured peak, or the lowest."
        )
        write_section("Training steps on a GPU", "python benchmarks/gpu.py", "\n".join([lead, "", *table]))
    return table


if __name__ == "__main__":
    main()
