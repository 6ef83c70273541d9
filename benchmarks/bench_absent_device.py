"""Compiled training steps on an H100 that is not there: exact peaks, and times by the device's prices."""

import argparse
import sys
import time
from dataclasses import dataclass

import absent_programs
from absent_programs import MEASURED_MIB
from results import ROOT, table_head, write_section

sys.path.insert(0, str(ROOT))

import lowtide
from lowtide.core.errors import UnsupportedError, one_line
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.absent_device.model import DeviceModel

SECTION = "Compiled steps on a GPU that is not there"
COMMAND = "python benchmarks/bench_absent_device.py"
WAYS = {
    "lowtide": ("reorder", "share", "recompute"),
    "lowtide, rounding": ("reorder", "share", "recompute", "rounding"),
}
PROGRAMS, DEVICE, MIB = absent_programs.__file__, "h100", 2**20
LEAD = (
    "Forward and backward passes on an H100 (80 GB), predicted without one. Both passes are lowered, fused and ordered "
    "by Inductor, which gives their exact peak (transient, without parameters and optimizer state). Times are a "
    "roofline estimate by the device's peak figures: they compare two programs and do not tell how long a step takes. "
    "`eager` runs op by op, `compiled` under `torch.compile`, `blocks` under `torch.compile` with every block "
    'checkpointed. `lowtide` is `backend="lowtide"` at the peak of `blocks`, at half the peak of `compiled`, and for '
    "the head within 4 GB in all; with `rounding`, also in chunks where that is faster. `recomputed` counts results of "
    "kernels that are recomputed; `form` is how the largest products are computed. `measured` is the peak that an H100 "
    "measured for the same program (PyTorch 2.13, CUDA 13.0). `planning` "
    "is the wall time of all plans and lowerings for one budget."
)


@dataclass(frozen=True)
class Case:
    """A program, and the program in blocks and the budgets to compare it with."""

    name: str
    program: str
    blocks: str | None = None
    budgets: tuple[str, ...] = ("50%",)


CASES = (
    Case(
        "Llama 1B, bf16, 4 x 2,048 tokens, 128,256 classes",
        "llama",
        "llama_in_blocks",
    ),
    Case("GPT-2 medium, AMP, 8 x 1,024 tokens", "gpt2", "gpt2_in_blocks"),
    Case("ResNet-50, AMP, 256 images", "resnet"),
    Case("Head, bf16, 16,384 tokens, 248,320 classes, width 2,048", "head", budgets=("4GB",)),
)


def rows_of(case: Case) -> list[list[str]]:
    """Return the rows of a case."""
    model = DeviceModel(f"{PROGRAMS}:{case.program}", DEVICE)
    facts = model.on_device
    base = facts.compiled_seconds
    rows = [
        _row("eager", "", facts.eager_peak_bytes, facts.eager_seconds, base, case),
        _row("compiled", "", facts.compiled_peak_bytes, base, base, case),
    ]
    budgets = list(case.budgets)
    if case.blocks is not None:
        try:
            checkpointed = DeviceModel(f"{PROGRAMS}:{case.blocks}", DEVICE).on_device
        except UnsupportedError as error:
            print(one_line(error), file=sys.stderr)
        else:
            peak, seconds = checkpointed.compiled_peak_bytes, checkpointed.compiled_seconds
            rows.append(_row("blocks", "", peak, seconds, base, case))
            budgets.insert(0, f"{peak + facts.persistent_bytes} B")
    for budget in budgets:
        for way, allow in WAYS.items():
            started = time.perf_counter()
            result = lowtide.plan(model, device=DEVICE, budget=budget, allow=allow)
            rows.append(_planned_row(way, result, base, case, time.perf_counter() - started))
    return rows


def _planned_row(way: str, result: Result, base: float, case: Case, planning_s: float) -> list[str]:
    space = result.graph.spaces[0].name
    allowed = result.budget.allowed[space] or 0
    is_met = "" if result.shortfall is None else ", missed"
    seconds = result.base_cost + result.extra_cost
    row = _row(way, f"{allowed / MIB:,.0f}{is_met}", result.peak_bytes[space], seconds, base, case)
    return [*row[:-4], str(result.reruns), result.form, "", f"{planning_s:.0f}"]


def _row(way: str, budget: str, peak: int, seconds: float, base: float, case: Case) -> list[str]:
    program = {"compiled": case.program, "blocks": case.blocks}.get(way)
    measured = MEASURED_MIB.get(program or "")
    extra = f"{100 * (seconds / base - 1):+.1f} %"
    shown = "" if measured is None else f"{measured:,.0f}"
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
