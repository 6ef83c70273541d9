"""torch's own partitioner against lowtide's recomputation: extra cost at equal simulated peak on training graphs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from results import write_section
from torch_partitions import Joint, Partition, joint_of, partitions_of
from training_models import MODELS

import lowtide
from lowtide.analysis import simulate
from lowtide.plan import Plan

TARGETS: Mapping[int, float] = {70: 0.5, 50: 0.7}
"""Per budget in percent of the peak, the most extra cost to have, as a share of what torch's partitioner has."""
GIVEN = ("recompute",)
FREE = ("recompute", "reorder", "share")
NEAR = 10
"""How many points of percent torch's peak may be away."""


@dataclass(frozen=True)
class Cell:
    """Both sides at one budget; ours within torch's simulated peak."""

    model: str
    percent: int
    baseline_peak: int
    base_cost: float
    torch: Partition | None
    given: float | None
    free: float | None

    @property
    def ratio(self) -> float | None:
        """Our extra cost over torch's, with the order free."""
        if self.torch is None or self.free is None:
            return None
        return self.free / self.torch.extra_cost if self.torch.extra_cost else float(self.free > 0)

    @property
    def met(self) -> bool:
        """Whether the target holds."""
        return self.ratio is not None and self.ratio <= TARGETS[self.percent]

    def line(self) -> str:
        """The row of the table."""
        if self.torch is None:
            return f"| {self.model} | {self.percent}% | no plan | | | | | |"
        chosen = f"{self.torch.peak_bytes / self.baseline_peak:.1%} ({self.torch.activation_budget:.2f})"
        theirs = f"{self.torch.extra_cost / self.base_cost:.2%}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        ours = [self._share(self.given), self._share(self.free)]
        cells = [self.model, f"{self.percent}%", chosen, theirs, *ours, ratio, "met" if self.met else "missed"]
        return f"| {' | '.join(cells)} |"

    def _share(self, extra: float | None) -> str:
        return "no plan" if extra is None else f"{extra / self.base_cost:.2%}"


def extra_cost(joint: Joint, peak_bytes: int, means: Iterable[str]) -> float | None:
    """Return what lowtide's plan within a peak costs extra; None where none fits."""
    budget = peak_bytes + sum(joint.graph.persistent_bytes().values())
    result = lowtide.minimize(joint.graph, budget=budget, allow=means)
    return result.extra_cost if next(iter(result.peak_bytes.values())) <= peak_bytes else None


def cells_of(name: str, joint: Joint) -> Iterator[Cell]:
    """Compare torch's plan that comes nearest to every budget with ours within the peak of that plan."""
    (peak,) = simulate(joint.graph, Plan.baseline(joint.graph)).peak_bytes.values()
    found = partitions_of(joint)
    base = float(joint.graph.cost.sum())
    for percent in TARGETS:
        near = [each for each in found if abs(each.peak_bytes / peak * 100 - percent) <= NEAR]
        theirs = min(near, key=lambda each: abs(each.peak_bytes / peak * 100 - percent), default=None)
        given, free = (
            None if theirs is None else extra_cost(joint, theirs.peak_bytes, means) for means in (GIVEN, FREE)
        )
        yield Cell(name, percent, peak, base, theirs, given, free)


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    head = ["model", "budget", "torch's peak (setting)", "torch", "given order", "reordered", "ratio", "target"]
    table = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 2)}---|"]
    print("\n".join(table), flush=True)
    cells: list[Cell] = []
    for model in MODELS:
        for cell in cells_of(model.name, joint_of(model.name, *model.make())):
            cells.append(cell)
            table.append(cell.line())
            print(table[-1], flush=True)
    compared = [cell for cell in cells if cell.torch is not None]
    met = [cell for cell in compared if cell.met]
    lead = (
        "Extra cost over one run of every op (eager profile) of plans for the same joint graph, without decompositions "
        "and with common subexpressions merged. torch: what `min_cut_rematerialization_partition` gives for "
        "`activation_memory_budget` 1.0, 0.95 ... 0, forward and backward graph simulated as one program; of these, "
        f"without the beaten ones, the plan whose peak comes nearest to the budget, no more than {NEAR} points away. "
        "Ours: within the simulated peak of that plan, in the joint graph's order without in-place pairs, and with "
        "both free. Budgets and peaks are in percent of the untouched joint graph's peak, without weights."
    )
    targets = ", ".join(f"{most} of torch's extra cost at {percent}%" for percent, most in TARGETS.items())
    summary = f"At most {targets}: met in {len(met)} of {len(compared)} cells where torch has a plan."
    print(summary)
    text = "\n".join([lead, "", summary, "", *table])
    write_section("Recomputation against torch's partitioner", "python benchmarks/bench_torch_partitioner.py", text)


if __name__ == "__main__":
    main()
