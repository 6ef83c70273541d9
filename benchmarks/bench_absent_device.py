"""Compiled training steps on an H100 that is not there: exact peaks, and times by the device's prices."""

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from results import ROOT, table_head, write_section
from torch import Tensor, nn

sys.path.insert(0, str(ROOT))

import lowtide
from lowtide.core.errors import UnsupportedError, one_line
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.absent_device.model import DeviceModel

SECTION = "Compiled steps on a GPU that is not there"
COMMAND = "python benchmarks/bench_absent_device.py"
DEVICE, MIB = "h100", 2**20
LEAD = (
    "Forward and backward passes on an H100 (80 GB), predicted without one. Both passes are lowered, fused and ordered "
    "by Inductor, which gives their exact peak (transient, without parameters and optimizer state). Times are a "
    "roofline estimate by the device's peak figures: they compare two programs and do not tell how long a step takes. "
    "`eager` runs op by op, `compiled` under `torch.compile`, `blocks` under `torch.compile` with every block "
    'checkpointed. `lowtide` is `backend="lowtide"` at the peak of `blocks`, at half the peak of `compiled`, and for '
    "the head within 4 GB in all. `recomputed` counts kernels that run twice; `form` is how the largest products are "
    "computed. `measured` is the peak that an H100 measured for the same program (PyTorch 2.13, CUDA 13.0). `planning` "
    "is the wall time of all plans and lowerings for one budget."
)


@dataclass(frozen=True)
class Case:
    """A program in this file, and the programs and budgets to compare."""

    name: str
    program: str
    blocks: str | None = None
    budgets: tuple[str, ...] = ("50%",)
    measured_mib: Mapping[str, int] = field(default_factory=dict[str, int])


CASES = (
    Case(
        "Llama 1B, bf16, 4 x 2,048 tokens, 128,256 classes",
        "llama",
        "llama_in_blocks",
        measured_mib={"compiled": 12_521, "blocks": 5_395},
    ),
    Case("GPT-2 medium, AMP, 8 x 1,024 tokens", "gpt2", "gpt2_in_blocks", measured_mib={"compiled": 10_450}),
    Case("ResNet-50, AMP, 256 images", "resnet", measured_mib={"compiled": 10_029}),
    Case("Head, bf16, 16,384 tokens, 248,320 classes, width 2,048", "head", budgets=("4GB",)),
)


def llama(*, in_blocks: bool = False) -> Any:
    """Return Llama 1B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128_256,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    return _step(model, _tokens(4, 2048), in_blocks=in_blocks, autocast=False)


def llama_in_blocks() -> Any:
    """Return Llama 1B with every block checkpointed."""
    return llama(in_blocks=True)


def gpt2(*, in_blocks: bool = False) -> Any:
    """Return GPT-2 medium with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False))
    return _step(model, _tokens(8, 1024), in_blocks=in_blocks, autocast=True)


def gpt2_in_blocks() -> Any:
    """Return GPT-2 medium with every block checkpointed."""
    return gpt2(in_blocks=True)


def resnet() -> Any:
    """Return ResNet-50 with images in channels-last format."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).to(memory_format=torch.channels_last)
    images = torch.randn(256, 3, 224, 224).to(memory_format=torch.channels_last)

    def loss(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return nn.functional.cross_entropy(model(images).logits, classes)

    return _training(model, loss), (images, torch.zeros(256, dtype=torch.long))


def head() -> Any:
    """Return an output layer with its loss, and the gradients of its weight and its input."""

    def loss(model: nn.Module, rows: Tensor, classes: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(rows).float(), classes)

    layer = nn.Linear(2048, 248_320, bias=False, dtype=torch.bfloat16)
    rows = torch.zeros(16_384, 2048, dtype=torch.bfloat16, requires_grad=True)
    return _training(layer, loss, torch.optim.SGD), (rows, torch.zeros(16_384, dtype=torch.long))


def _tokens(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.long)


def _step(model: Any, tokens: Tensor, *, in_blocks: bool, autocast: bool) -> Any:
    if in_blocks:
        model.gradient_checkpointing_enable()

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return model(input_ids=tokens, labels=tokens).loss

    return _training(model, loss), (tokens,)


def _training(model: nn.Module, loss: Any, optimizer: Any = torch.optim.AdamW) -> Any:
    from lowtide.torch import TrainingStep

    return TrainingStep(model.train(), loss, optimizer(model.parameters(), lr=1e-3))


def rows_of(case: Case) -> list[list[str]]:
    """Return the rows of a case."""
    model = DeviceModel(f"{__file__}:{case.program}", DEVICE)
    facts = model.on_device
    base = facts.compiled_seconds
    rows = [
        _row("eager", "", facts.eager_peak_bytes, facts.eager_seconds, base, case),
        _row("compiled", "", facts.compiled_peak_bytes, base, base, case),
    ]
    budgets = list(case.budgets)
    if case.blocks is not None:
        try:
            checkpointed = DeviceModel(f"{__file__}:{case.blocks}", DEVICE).on_device
        except UnsupportedError as error:
            print(one_line(error), file=sys.stderr)
        else:
            peak, seconds = checkpointed.compiled_peak_bytes, checkpointed.compiled_seconds
            rows.append(_row("blocks", "", peak, seconds, base, case))
            budgets.insert(0, f"{peak + facts.persistent_bytes} B")
    for budget in budgets:
        started = time.perf_counter()
        result = lowtide.plan(model, device=DEVICE, budget=budget)
        rows.append(_planned_row(result, base, case, time.perf_counter() - started))
    return rows


def _planned_row(result: Result, base: float, case: Case, planning_s: float) -> list[str]:
    space = result.graph.spaces[0].name
    allowed = result.budget.allowed[space] or 0
    is_met = "" if result.shortfall is None else ", missed"
    seconds = result.base_cost + result.extra_cost
    row = _row("lowtide", f"{allowed / MIB:,.0f}{is_met}", result.peak_bytes[space], seconds, base, case)
    return [*row[:-4], str(result.reruns), result.form, "", f"{planning_s:.0f}"]


def _row(way: str, budget: str, peak: int, seconds: float, base: float, case: Case) -> list[str]:
    measured = case.measured_mib.get(way)
    extra = f"{100 * (seconds / base - 1):+.1f} %"
    shown = "" if measured is None else f"{measured:,}"
    return [case.name, way, budget, f"{peak / MIB:,.0f}", f"{1e3 * seconds:.1f}", extra, "", "", shown, ""]


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="print the rows of one program instead of writing the section")
    only = parser.parse_args().only
    names = ("program", "way", "budget, MiB", "peak, MiB", "ms", "extra time", "recomputed", "form", "measured, MiB")
    lines = table_head([*names, "planning, s"], 2)
    for case in CASES:
        if only in (None, case.program):
            for row in rows_of(case):
                lines.append(f"| {' | '.join(row)} |")
                print(lines[-1], flush=True)
    if only is None:
        write_section(SECTION, COMMAND, "\n".join([LEAD, "", *lines]))


if __name__ == "__main__":
    main()
