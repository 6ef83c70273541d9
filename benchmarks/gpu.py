"""Training loops on a GPU: peak, reserved memory and time with lowtide and with what people use today.

Each row runs in a process of its own and is kept in a folder at once, so that a run that was stopped goes on. Several
rows can compile side by side. They are measured one at a time, when all of them have compiled.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from results import table_head, write_section
from side_by_side import RowCommand, measure_rows, wait_for_turn
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint
from training_models import WithLoss
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
)

import lowtide.torch
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.measure.measure import predict
from lowtide.frameworks.torch.planning.programs import programs_run

Batch = tuple[torch.Tensor, ...]
MIB = 2**20
WARM_UP_STEPS, TIMED_STEPS = 3, 10
CHECKPOINTS = "compiled, blocks in checkpoints"
HALF, WHOLE_STEP = "lowtide, 50 %", "whole step, op by op, 60 %"
WITHIN = "lowtide, at the peak of compiled checkpoints"


@dataclass(frozen=True)
class GpuModel:
    """A model that returns its loss, with a batch for one GPU, or a small one."""

    make: Callable[[bool], tuple[nn.Module, Batch]]
    blocks: str
    """Path of the list of repeated blocks."""
    autocast: bool = True


def _tokens(classes: int, sequences: int, length: int) -> Batch:
    return torch.randint(classes, (sequences, length)), torch.randint(classes, (sequences, length))


def _llama(small: bool) -> tuple[nn.Module, Batch]:
    width, layers, classes = (64, 1, 512) if small else (2048, 16, 128_256)
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(4, width // 64),
        num_key_value_heads=max(2, width // 256),
        vocab_size=classes,
        tie_word_embeddings=True,
        use_cache=False,
    )
    batch = _tokens(classes, 2, 16) if small else _tokens(classes, 4, 2048)
    return WithLoss(LlamaForCausalLM(config)).to(torch.bfloat16), batch


def _gpt2(small: bool) -> tuple[nn.Module, Batch]:
    width, layers, classes = (64, 1, 512) if small else (1024, 24, 50_257)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=width // 64, vocab_size=classes, use_cache=False)
    return WithLoss(GPT2LMHeadModel(config)), _tokens(classes, 2, 16) if small else _tokens(classes, 8, 1024)


def _resnet(small: bool) -> tuple[nn.Module, Batch]:
    config = ResNetConfig(**({"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]} if small else {}), num_labels=1000)
    images, pixels = (2, 32) if small else (256, 224)
    module = WithLoss(ResNetForImageClassification(config)).to(memory_format=torch.channels_last)
    rows = torch.randn(images, 3, pixels, pixels).to(memory_format=torch.channels_last)
    return module, (rows, torch.randint(1000, (images,)))


MODELS: Mapping[str, GpuModel] = {
    "Llama 1B": GpuModel(_llama, "model.model.layers", autocast=False),
    "GPT-2 medium": GpuModel(_gpt2, "model.transformer.h"),
    "ResNet-50": GpuModel(_resnet, "model.resnet.encoder.stages"),
}


class Loop:
    """The training loop of a model on a device."""

    def __init__(self, model: GpuModel, device: torch.device, compiler: str, *, small: bool) -> None:
        torch.manual_seed(0)
        module, batch = model.make(small)
        self.module, self.model, self.compiler = module.to(device).train(), model, compiler
        self.device = device
        self.batch = tuple(each.to(device) for each in batch)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), fused=True)

    def loss(self, module: Callable[..., Any], *batch: torch.Tensor) -> torch.Tensor:
        """Return the loss, under autocast to bfloat16 if the model uses it."""
        with torch.autocast(self.device.type, torch.bfloat16) if self.model.autocast else nullcontext():
            return module(*batch)

    def step_with(self, module: Callable[..., Any]) -> Callable[[], Any]:
        """Return a step that computes the loss by `module`."""

        def step() -> None:
            self.loss(module, *self.batch).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

        return step

    def compiled(self) -> Callable[..., Any]:
        """Return the module compiled without lowtide."""
        return torch.compile(self.module, backend="inductor" if self.compiler == "inductor" else "aot_eager")

    def planned(self, budget: str | int, **options: Any) -> Callable[[], Any]:
        """Return a step compiled by lowtide."""
        given = {"compiler": self.compiler, "budget": budget, **options}
        return self.step_with(torch.compile(self.module, backend="lowtide", options=given))

    def whole(self, budget: str, compiler: Any) -> Callable[[], Any]:
        """Return a whole step planned by lowtide."""
        step = lowtide.torch.training_step(
            self.module, self.loss, self.optimizer, self.batch, budget=budget, compiler=compiler
        )
        return partial(step, *self.batch)

    def checkpointed(self) -> nn.Module:
        """Return the module with every block in `torch.utils.checkpoint`."""
        for block in self.module.get_submodule(self.model.blocks).children():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        return self.module


def _within_torchs_budget(loop: Loop, _budget: int) -> Callable[[], Any]:
    functorch_config.activation_memory_budget = 0.5
    return loop.step_with(loop.compiled())


def _checkpointed_and_compiled(loop: Loop, _budget: int) -> Callable[[], Any]:
    loop.checkpointed()
    return loop.step_with(loop.compiled())


WAYS: Mapping[str, Callable[[Loop, int], Callable[[], Any]]] = {
    "compiled": lambda loop, _budget: loop.step_with(loop.compiled()),
    CHECKPOINTS: _checkpointed_and_compiled,
    "torch's own budget, 0.5": _within_torchs_budget,
    HALF: lambda loop, _budget: loop.planned("50%"),
    "whole step, compiled, 60 %": lambda loop, _budget: loop.whole("60%", loop.compiler),
    WITHIN: lambda loop, budget: loop.planned(budget),
    f"{WITHIN}, to rounding": lambda loop, budget: loop.planned(budget, allow=["recompute", "rounding"]),
    "lowtide, fit": lambda loop, _budget: loop.planned("fit"),
    "lowtide, 50 % with offload": lambda loop, _budget: loop.planned("50%", allow=["recompute", "offload"]),
    "whole step, compiled, 100 %": lambda loop, _budget: loop.whole("100%", loop.compiler),
    "eager": lambda loop, _budget: loop.step_with(loop.module),
    "eager, blocks in checkpoints": lambda loop, _budget: loop.step_with(loop.checkpointed()),
    "lowtide, 50 %, op by op, to rounding": lambda loop, _budget: loop.planned(
        "50%", compiler="eager", allow=["reorder", "share", "recompute", "rounding"]
    ),
    WHOLE_STEP: lambda loop, _budget: loop.whole("60%", "eager"),
}


@dataclass(frozen=True)
class Row:
    """One way to train a model; bytes above those that are allocated between steps."""

    model: str
    way: str
    peak_bytes: int = 0
    predicted_bytes: int | None = None
    reserved_bytes: int | None = None
    """Reserved by the caching allocator, all in all."""
    resident_bytes: int = 0
    least_seconds: float = 0.0
    median_seconds: float = 0.0
    first_call_seconds: float = 0.0
    error: str | None = None

    def line(self, compiled: "Row | None") -> str:
        """Return the row of the table, beside the row of the compiler without lowtide."""
        if self.error is not None:
            return f"| {self.model} | {self.way}: {self.error} |{' |' * 8}"
        share = "" if compiled is None or compiled.error else f"{self.peak_bytes / compiled.peak_bytes:.1%}"
        cells = [
            self.model,
            self.way,
            _mebibytes(self.predicted_bytes),
            _mebibytes(self.peak_bytes),
            share,
            _mebibytes(self.resident_bytes),
            _mebibytes(self.reserved_bytes),
            f"{1e3 * self.least_seconds:.1f}",
            f"{1e3 * self.median_seconds:.1f}",
            f"{self.first_call_seconds:.0f}",
        ]
        return f"| {' | '.join(cells)} |"


def _mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / MIB:,.0f}"


def measured_row(
    name: str,
    way: str,
    device: torch.device,
    compiler: str,
    *,
    small: bool,
    budget: int = 0,
    turn: Callable[[], Any] = lambda: None,
    profile: bool = False,
) -> Row:
    """Train a model in one way and return its figures; `budget` is for the way that has one in bytes.

    `turn` is called after the first steps and returns when the device is free.
    """
    is_cuda = device.type == "cuda"
    loop = Loop(MODELS[name], device, compiler, small=small)
    if budget:  # a budget in bytes includes the tensors that the program reads
        budget += sum(each.nbytes for each in (*loop.module.parameters(), *loop.module.buffers(), *loop.batch))
    started = time.perf_counter()
    step = WAYS[way](loop, budget)
    step()
    _wait(device)
    first = time.perf_counter() - started
    for _ in range(WARM_UP_STEPS):
        step()
    loop.optimizer.zero_grad(set_to_none=True)
    _wait(device)
    turn()
    resident = torch.cuda.memory_allocated(device) if is_cuda else 0
    with programs_run() as programs:
        peak, _ = peak_of_call(step, device)
    seconds: list[float] = []
    for _ in range(1 if small else TIMED_STEPS):
        started = time.perf_counter()
        step()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    if profile:
        with torch.profiler.profile() as profiler:
            step()
            _wait(device)
        print(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=25), file=sys.stderr)
    predicted = predict(getattr(step, "func", step), programs).peak_bytes
    held = sum(each.nbytes for each in loop.batch)
    return Row(
        name,
        way,
        peak,
        None if predicted is None or str(device) not in predicted else predicted[str(device)] - held,
        torch.cuda.max_memory_reserved(device) if is_cuda else None,
        resident,
        min(seconds),
        median(seconds),
        first,
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rows(given: argparse.Namespace, more: Sequence[str]) -> Iterator[Row]:
    """Yield the row of each model and way, measured now or kept in the folder."""
    chosen = [(name, way) for name in MODELS for way in WAYS]
    chosen = [each for each in chosen if any(fnmatchcase(": ".join(each), part) for part in given.rows.split("|"))]
    for first in range(0, len(chosen), given.workers):
        some = chosen[first : first + given.workers]
        measure_rows([_command(given, more, *each) for each in some], given.workers, given.limit)
        for name, way in some:
            yield Row(**{"model": name, "way": way, **json.loads(_file(given, name, way).read_text())})


def _command(given: argparse.Namespace, more: Sequence[str], name: str, way: str) -> RowCommand:
    budget = next((int(mebibytes) * MIB for known, mebibytes in given.checkpoints if known == name), 0)
    checkpoints = _file(given, name, CHECKPOINTS)
    if checkpoints.exists():
        budget = json.loads(checkpoints.read_text()).get("peak_bytes", budget)
    line = [__file__, *more, "--budget", str(budget), "--row", name, way]
    return RowCommand(line, _file(given, name, way), {})


def _file(given: argparse.Namespace, name: str, way: str) -> Path:
    folder: Path = given.folder
    return folder / f"{name} {way}.json"


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Measure the rows that the folder lacks, print all, and write the section if they are of a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that everything runs")
    parser.add_argument("--rows", default="*", help="patterns of 'model: way', with | between")
    parser.add_argument("--compiler", choices=("inductor", "eager"), default="inductor")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="where rows are kept")
    parser.add_argument("--workers", type=int, default=1, help="rows that compile side by side")
    parser.add_argument(
        "--checkpoints",
        nargs=2,
        action="append",
        default=[],
        metavar=("MODEL", "MIB"),
        help="the peak of compiled checkpoints, if its row is measured later",
    )
    parser.add_argument("--profile", action="store_true", help="keep the kernels of each row that take longest")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that a row may compile")
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device is there; to see that everything runs: --device cpu --small --compiler eager")
    if device == torch.device("cuda"):
        device = torch.device("cuda", torch.cuda.current_device())
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("high")
    if given.row:
        name, way = given.row
        options = {"small": given.small, "budget": given.budget, "turn": wait_for_turn, "profile": given.profile}
        row = measured_row(name, way, device, given.compiler, **options)
        print(json.dumps(asdict(row)))
        return []
    given.folder.mkdir(parents=True, exist_ok=True)
    head = ["model", "way", "predicted", "peak", "of compiled", "resident", "reserved", "least ms", "median ms"]
    table = table_head([*head, "first call, s"], n_texts=2)
    print("\n".join(table), flush=True)
    compiled: Row | None = None
    more = ["--device", str(device), "--compiler", given.compiler, *(["--small"] if given.small else [])]
    more += ["--profile"] if given.profile else []
    for row in _rows(given, more):
        compiled = row if row.way == "compiled" else compiled
        table.append(row.line(compiled))
        print(table[-1], flush=True)
        if device.type == "cuda" and not given.small:
            lead = (
                f"On one {torch.cuda.get_device_name(device)}: training loops with fused AdamW, Llama in bfloat16, the "
                "others under autocast to it. Peaks in MiB above what is allocated between steps (resident); reserved "
                "is the caching allocator's most, with the first call."
            )
            write_section("Training steps on a GPU", "python benchmarks/gpu.py", "\n".join([lead, "", *table]))
    return table


if __name__ == "__main__":
    main()
