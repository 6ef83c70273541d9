"""Real training steps under `torch.compile(backend="lowtide")`: measured peaks beside budgets and torch itself."""

import argparse
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from measured_models import MODELS, NARROW, MeasuredModel, without_dropout
from measured_runs import Trained, Training
from results import write_section

from lowtide.core.units import format_bytes

BUDGETS = (100, 70, 50, 40)
ACTIVATION_BUDGETS = (0.7, 0.5, 0.3, 0.1)
CLOSE = 0.02
"""How far the measured peak may be from the predicted one."""
SECTION = "Real training steps in PyTorch"
Lines = list[str]


@dataclass(frozen=True)
class Step:
    """A model's step at one budget."""

    model: str
    percent: int
    budget_bytes: int
    trained: Trained
    equal: tuple[bool, bool]
    """Whether the bits are those of eager PyTorch, and of PyTorch's backend aot_eager."""

    @property
    def close(self) -> bool:
        """Whether the measured peak is the predicted one."""
        share = self.trained.measured.measured_over_predicted
        return share is not None and abs(share - 1) <= CLOSE

    @property
    def kept(self) -> bool:
        """Whether a plan that says it fits does fit."""
        return self.trained.result.shortfall is not None or self.trained.peak_bytes <= self.budget_bytes

    def line(self, base: Training) -> str:
        """The row of the table."""
        trained, measured = self.trained, self.trained.measured
        assert base.unmodified_work is not None
        fits = "no" if trained.result.shortfall else "yes" if self.kept else "over"
        bits = "eager" if self.equal[0] else "aot_eager" if self.equal[1] else "neither"
        cells = [
            self.model,
            f"{self.percent}%",
            format_bytes(measured.predicted_peak_bytes or 0),
            format_bytes(trained.peak_bytes),
            f"{measured.measured_over_predicted:.4f}",
            fits,
            f"{trained.again.flops / base.unmodified_work.flops:.2%}",
            f"{trained.again.seconds / base.unmodified_work.seconds:.2%}",
            bits,
            str(trained.result.status),
        ]
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Against:
    """Torch's own activation budget and lowtide within the peak that it measured, without dropout."""

    model: str
    activation_budget: float
    baseline: int
    theirs: Trained
    with_dropout_right: bool
    """Whether torch's loss and gradients at this setting are right when dropout is on."""
    ours: dict[str, Trained]
    """By cost profile."""

    @property
    def fewer(self) -> bool:
        """Whether lowtide computes less again within the same measured peak."""
        return any(
            ours.peak_bytes <= self.theirs.peak_bytes and ours.again.flops < self.theirs.again.flops
            for ours in self.ours.values()
        )

    @property
    def faster(self) -> bool:
        """Whether what lowtide computes again takes less time by the eager profile."""
        ours = self.ours["eager"]
        return ours.peak_bytes <= self.theirs.peak_bytes and ours.again.seconds < self.theirs.again.seconds

    def line(self, base: Training) -> str:
        """The row of the table."""
        work = base.unmodified_work
        assert work is not None
        cells = [self.model, f"{self.activation_budget}"]
        for trained in (self.theirs, *self.ours.values()):
            cells.append(f"{trained.peak_bytes / self.baseline:.1%}")
            cells += [f"{trained.again.flops / work.flops:.2%}", f"{trained.again.seconds / work.seconds:.2%}"]
        cells += ["yes" if fact else "no" for fact in (self.fewer, self.faster, self.with_dropout_right)]
        return f"| {' | '.join(cells)} |"


def steps_of(name: str, training: Training, eager: Trained, aot: Trained) -> Iterator[Step]:
    """Train at every budget, in percent of the measured peak of the untouched program."""
    baseline = persistent = 0
    for percent in BUDGETS:
        budget = baseline * percent // 100
        trained = training.with_lowtide(budget=budget + persistent if baseline else f"{percent}%")
        if not baseline:
            baseline = budget = trained.peak_bytes
            persistent = sum(trained.result.persistent_bytes.values())
        yield Step(name, percent, budget, trained, (trained.digest == eager.digest, trained.digest == aot.digest))


def against_torch(model: MeasuredModel, with_dropout: Training, aot: Trained) -> tuple[Against, Training]:
    """Compare with what torch does at the setting whose measured peak comes nearest to half the baseline's.

    Dropout is off: with it, torch's plans compute wrong gradients, so they are no plans of the same program.
    """
    torch.manual_seed(0)
    module, batch = model.make(NARROW)
    training = Training(without_dropout(module), batch)
    untouched = training.with_torch(None)
    runs = [(setting, training.with_torch(setting)) for setting in ACTIVATION_BUDGETS]
    lower = [(setting, run) for setting, run in runs if run.peak_bytes < untouched.peak_bytes] or runs
    setting, theirs = min(lower, key=lambda each: abs(each[1].peak_bytes - untouched.peak_bytes / 2))
    held = sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers()])
    ours = {costs: training.with_lowtide(budget=theirs.peak_bytes + held, costs=costs) for costs in ("eager", "fused")}
    right = with_dropout.with_torch(setting).digest == aot.digest
    return Against(model.name, setting, untouched.peak_bytes, theirs, right, ours), training


def measure_model(model: MeasuredModel, tables: dict[str, Lines], facts: dict[str, list[bool]]) -> None:
    """Run everything for one model; rows go to their tables and are printed."""

    def add(table: str, line: str) -> None:
        tables[table].append(line)
        print(line, flush=True)

    torch.manual_seed(0)
    training = Training(*model.make(NARROW))
    eager, aot = training.plain(), training.with_backend("aot_eager")
    training.with_torch(None)
    steps: list[Step] = []
    for step in steps_of(model.name, training, eager, aot):
        steps.append(step)
        add("steps", step.line(training))
    peaks = [format_bytes(each.peak_bytes) for each in (eager, aot, steps[0].trained)]
    before, after = training.inference_peaks()
    share = f"{after / before:.3f}"
    add("others", f"| {' | '.join([model.name, *peaks, format_bytes(before), format_bytes(after), share])} |")
    facts["close"] += [step.close for step in steps]
    facts["kept"] += [step.kept for step in steps]
    facts["equal"] += [any(step.equal) for step in steps]
    facts["monotone"].append(all(a.trained.peak_bytes >= b.trained.peak_bytes for a, b in pairwise(steps)))
    compared, without = against_torch(model, training, aot)
    add("torch", compared.line(without))
    facts["fewer"].append(compared.fewer)
    facts["faster"].append(compared.faster)
    facts["right"].append(compared.with_dropout_right)


HEADS = {
    "steps": "model | budget | predicted | measured | measured / predicted | fits | FLOPs again | time again | "
    "bits of | status",
    "others": "model | eager PyTorch | aot_eager | untouched joint graph | inference | reordered | ratio",
    "torch": "model | setting | torch: peak | FLOPs | time | lowtide, eager prices: peak | FLOPs | time | "
    "fused prices: peak | FLOPs | time | fewer FLOPs | less time | torch right with dropout",
}
LEADS = {
    "steps": "Budgets in percent of the measured peak of the untouched joint graph, without weights. FLOPs again: what "
    "runs again over all of one step, by `torch.utils.flop_counter` and one an element elsewhere; time again: by the "
    "eager profile. Bits: loss, gradients and buffers equal those of eager PyTorch, or, where PyTorch's own tracing "
    "changes them, those of backend aot_eager.",
    "others": "Measured peaks of training without a plan, and of inference, in PyTorch's order and in ours.",
    "torch": "`torch._functorch.config.activation_memory_budget` at the setting (of "
    f"{', '.join(map(str, ACTIVATION_BUDGETS))}) whose measured peak, in percent of the untouched joint graph's, comes "
    "nearest to half, its graphs run boxed as ours; lowtide within that measured peak, at two prices. Dropout is "
    "off: with it, torch's plans draw again what they dropped, and compute other gradients, as the last column says.",
}
FACTS = {
    "close": f"measured within {CLOSE:.0%} of predicted",
    "kept": "measured within the budget wherever the plan says it fits",
    "equal": "bits as PyTorch's",
    "monotone": "peak falls with the budget (models)",
    "fewer": "fewer FLOPs again than torch's own budget within the same measured peak (models, either price)",
    "faster": "less time again by the eager profile, likewise (models, eager prices)",
    "right": "torch's own budget computes the right gradients with dropout on (models)",
}


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when all models ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="models whose name contains this; RESULTS.md stays as it is")
    only = parser.parse_args().only
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    tables: dict[str, Lines] = {
        name: [f"| {head} |", "|---|" + "--:|" * head.count("|")] for name, head in HEADS.items()
    }
    facts: dict[str, list[bool]] = {name: [] for name in FACTS}
    for model in MODELS:
        if only is None or only in model.name:
            measure_model(model, tables, facts)
    summary = [f"- {text}: {sum(facts[name])} of {len(facts[name])}" for name, text in FACTS.items()]
    print("\n".join(summary))
    if only is None:
        parts = ["\n".join([LEADS[name], "", *tables[name]]) for name in HEADS]
        text = "\n\n".join(["\n".join(summary), *parts])
        write_section(SECTION, "python benchmarks/bench_torch_training.py", text)


if __name__ == "__main__":
    main()
