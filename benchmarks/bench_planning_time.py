"""Planning time of training steps, beside the time that Inductor takes to compile the same programs."""

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from bench_torch_compile_time import caches_off, processor_seconds
from results import table_head, write_section
from transformers import GPT2Config, GPT2LMHeadModel

import lowtide.torch
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import allowed_techniques
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.options import DEFAULTS

SECTION = "Planning time"
COMMAND = "python benchmarks/bench_planning_time.py"
LEAD = (
    "Whole training steps with AdamW, planned with default settings. Processor seconds on one thread. Capture includes "
    "the graph. The second start reads the plan from the cache. Inductor compiles forward and backward pass without "
    "the optimizer: a first step less a second one, caches off, for up to 12 layers. Cost is the time of the plan "
    "beyond the step's, by the prices of eager kernels."
)
HEAD = (
    "GPT-2 of this size",
    "budget",
    "ops",
    "capture",
    "per node",
    "planning",
    "second start",
    "cost",
    "Inductor",
)
MOST_COMPILED = 12
"""Number of layers up to which Inductor's time is measured."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a GPT-2 and of its batch."""

    layers: int
    width: int
    heads: int
    classes: int
    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.width}, {self.classes:,} classes, {self.batch} x {self.length} tokens"

    def make(self) -> tuple[GPT2LMHeadModel, torch.Tensor]:
        """Return the model with random weights, and a batch."""
        torch.manual_seed(0)
        config = GPT2Config(
            n_layer=self.layers,
            n_embd=self.width,
            n_head=self.heads,
            vocab_size=self.classes,
            n_positions=self.length,
            use_cache=False,
        )
        return GPT2LMHeadModel(config).train(), torch.randint(self.classes, (self.batch, self.length))


NANO = Size(4, 64, 4, 512, 12, 64)
SMALL = Size(6, 384, 6, 512, 8, 128)
GPT2_SMALL = Size(12, 768, 12, 50_257, 1, 128)
ROWS = (
    (NANO, "60%"),
    (SMALL, "50%"),
    (SMALL, "30%"),
    (GPT2_SMALL, "15%"),
    *((replace(SMALL, layers=layers), "50%") for layers in (12, 24, 48)),
)


def loss_of(model: GPT2LMHeadModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of predicting each next token."""
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return processor seconds of a call, and its result."""
    started = processor_seconds()
    result = work()
    return processor_seconds() - started, result


def captured(size: Size) -> TorchModel:
    """Return the captured training step, with its graph."""
    module, tokens = size.make()
    step = lowtide.torch.TrainingStep(module, loss_of, torch.optim.AdamW(module.parameters()))
    model = TorchModel(lowtide.torch.capture((step, (tokens,))))
    _ = model.graph
    return model


@cache
def compile_seconds(size: Size) -> float:
    """Return the processor seconds that Inductor takes to compile forward and backward pass."""
    module, tokens = size.make()
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    compiler: Any = torch.compile
    step: Callable[..., Any] = compiler(loss_of, dynamic=False)
    with caches_off():
        first, again = (timed(lambda: step(module, tokens).backward())[0] for _ in range(2))
    return first - again


def row_of(size: Size, budget: str) -> str:
    """Return the row of one step and budget."""
    capture, model = timed(lambda: captured(size))
    settings = replace(DEFAULTS, budget=budget, techniques=allowed_techniques(None, budget))
    planning, result = timed(lambda: plan_best_form(model, settings))
    second, _ = timed(lambda: plan_best_form(model, settings))
    nodes = len(model.captured.graph_module.graph.nodes)
    compiled = f"{compile_seconds(size):.1f} s" if size.layers <= MOST_COMPILED else "-"
    cells = (
        str(size),
        budget,
        f"{model.graph.n_ops:,}",
        f"{capture:.1f} s",
        f"{1000 * capture / nodes:.2f} ms",
        f"{planning:.1f} s",
        f"{second:.2f} s",
        cost_of(result),
        compiled,
    )
    return f"| {' | '.join(cells)} |"


def cost_of(result: Result) -> str:
    """Return the extra time of a plan, or that it misses its budget."""
    if result.shortfall is not None:
        return "missed"
    return f"+{(result.extra_cost + result.chunk_cost) / result.base_cost:.2%}"


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when all rows ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="rows whose text contains this; RESULTS.md stays as it is")
    only: str | None = parser.parse_args().only
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    captured(replace(NANO, layers=1))  # loads what PyTorch loads lazily
    table = table_head(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOWTIDE_CACHE"] = folder
        for size, budget in ROWS:
            if only is None or only in f"{size}, {budget}":
                table.append(row_of(size, budget))
                print(table[-1], time.strftime("%H:%M:%S"), flush=True)
    if only is None:
        write_section(SECTION, COMMAND, "\n".join([LEAD, "", *table]))


if __name__ == "__main__":
    main()
