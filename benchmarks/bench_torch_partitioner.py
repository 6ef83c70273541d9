"""torch's own partitioner against lowtide's recomputation on training graphs, with proof of what no plan can reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results import write_section
from torch_partitions import Joint, Partition, joint_of, partitions_of
from training_models import MODELS

import lowtide
from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.plan import Plan
from lowtide.engine.recompute import plan_within_budget

TARGETS: Mapping[int, float] = {70: 0.5, 50: 0.7}
"""Per budget in percent of the peak, the most extra cost to have, as a share of what torch's partitioner has."""
NEAR = 10
"""How many points of percent torch's peak may be away."""


@dataclass(frozen=True)
class Ours:
    """A plan of ours that fits, and what no plan with its order of first runs can beat."""

    extra_cost: float
    bound: float
    order: str


@dataclass(frozen=True)
class Cell:
    """Both sides at one budget."""

    model: str
    percent: int
    baseline_peak: int
    base_cost: float
    torch: Partition | None
    ours: Sequence[Ours | None]
    """By other means each; the last one counts."""

    @property
    def ratio(self) -> float | None:
        """Our extra cost over torch's."""
        free = self.ours[-1] if self.ours else None
        if self.torch is None or free is None:
            return None
        return free.extra_cost / self.torch.extra_cost if self.torch.extra_cost else float(free.extra_cost > 0)

    @property
    def verdict(self) -> str:
        """Whether the target holds, and if not, whether any plan with one of the orders can reach it."""
        if self.torch is None or self.ratio is None:
            return ""
        if self.ratio <= TARGETS[self.percent]:
            return "met"
        wanted = TARGETS[self.percent] * self.torch.extra_cost
        return "out of reach" if all(each is not None and each.bound > wanted for each in self.ours) else "missed"

    def line(self) -> str:
        """The row of the table."""
        cells = [self.model, f"{self.percent}%"]
        if self.torch is None:
            return f"| {' | '.join([*cells, 'no plan', *('' for _ in range(3 + len(self.ours)))])} |"
        cells += [f"{self._of_peak(self.torch.peak_bytes)} ({self.torch.activation_budget:.2f})"]
        cells += [self._of_cost(self.torch.extra_cost), *(self._side(each) for each in self.ours)]
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return f"| {' | '.join([*cells, ratio, self.verdict])} |"

    def _side(self, ours: Ours | None) -> str:
        if ours is None:
            return "no plan"
        order = "" if ours.order == "given" else f" in order {ours.order}"
        return f"{self._of_cost(ours.extra_cost)} (>= {self._of_cost(ours.bound)}{order})"

    def _of_cost(self, extra: float) -> str:
        return f"{extra / self.base_cost:.2%}"

    def _of_peak(self, peak: int) -> str:
        return f"{peak / self.baseline_peak:.1%}"


def in_given_order(joint: Joint, peak_bytes: int) -> Ours | None:
    """Return lowtide's plan within a peak in the joint order, as torch's are; None where none fits."""
    problem = Problem(joint.graph, in_place=False)
    result = plan_within_budget(problem, problem.given_order(), peak_bytes)
    return Ours(result.extra_cost, result.extra_cost_bound, "given") if result.fits else None


def in_any_order(joint: Joint, peak_bytes: int) -> Ours | None:
    """Return lowtide's plan within a peak with order and in-place pairs free; None where none fits."""
    budget = peak_bytes + sum(joint.graph.persistent_bytes().values())
    result = lowtide.minimize(joint.graph, budget=budget, allow={"recompute", "reorder", "share"})
    if next(iter(result.peak_bytes.values())) > peak_bytes:
        return None
    return Ours(result.extra_cost, result.extra_cost_bound or 0.0, result.base_order)


def cells_of(name: str, joint: Joint) -> tuple[list[Cell], list[Cell]]:
    """Compare at equal peak, ours within that of torch's plan nearest to a budget, and within equal budgets, where
    torch's plan is its cheapest that fits."""
    (peak,) = simulate(joint.graph, Plan.baseline(joint.graph)).peak_bytes.values()
    found = partitions_of(joint)
    base = float(joint.graph.cost.sum())
    at_peak: list[Cell] = []
    at_budget: list[Cell] = []
    for percent in TARGETS:
        near = [each for each in found if abs(each.peak_bytes / peak * 100 - percent) <= NEAR]
        nearest = min(near, key=lambda each: abs(each.peak_bytes / peak * 100 - percent), default=None)
        ours = [] if nearest is None else [make(joint, nearest.peak_bytes) for make in (in_given_order, in_any_order)]
        at_peak.append(Cell(name, percent, peak, base, nearest, ours or (None, None)))
        budget = peak * percent // 100
        cheapest = next((each for each in found if each.peak_bytes <= budget), None)  # sorted by extra cost
        at_budget.append(Cell(name, percent, peak, base, cheapest, [in_any_order(joint, budget)]))
    return at_peak, at_budget


def summary(cells: Sequence[Cell]) -> str:
    """Count the verdicts."""
    verdicts = [cell.verdict for cell in cells if cell.ratio is not None]
    met, proven = verdicts.count("met"), verdicts.count("out of reach")
    return f"met in {met} of {len(verdicts)} cells where torch has a plan, proven out of reach in {proven}."


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    head = ["model", "budget", "torch's peak (setting)", "torch"]
    tables = (["given order", "reordered", "ratio", "target"], ["reordered", "ratio", "target"])
    rows = [[f"| {' | '.join(head + rest)} |", f"|---|{'--:|' * (len(head + rest) - 2)}---|"] for rest in tables]
    cells: tuple[list[Cell], list[Cell]] = ([], [])
    for model in MODELS:
        for kind, found in enumerate(cells_of(model.name, joint_of(model.name, *model.make()))):
            for cell in found:
                cells[kind].append(cell)
                rows[kind].append(cell.line())
                print(rows[kind][-1], flush=True)
    lead = (
        "Extra cost over one run of every op (eager profile) of plans for the same joint graph, without decompositions "
        "and with common subexpressions merged. torch: what `min_cut_rematerialization_partition` gives for "
        "`activation_memory_budget` 1.0, 0.95 ... 0, forward and backward graph simulated as one program, without the "
        "plans that others beat; first runs keep the joint graph's order. Ours: in that same order without in-place "
        "pairs, and with both free; behind >= what no plan within that peak can beat, by whatever method, that runs "
        "ops for the first time in the order that is named (the joint graph's where none is). A target is out of reach "
        "where all these bounds are above it: only yet another order of first runs could meet it. Budgets and peaks "
        "are in percent of the untouched joint graph's peak, without weights."
    )
    targets = ", ".join(f"{most} of torch's extra cost at {percent}%" for percent, most in TARGETS.items())
    at_peak = (
        f"At equal peak: torch's plan whose peak is nearest to the budget, no more than {NEAR} points away, and ours "
        f"within that same peak. At most {targets}: {summary(cells[0])}"
    )
    at_budget = (
        "Within equal budgets: torch's cheapest plan whose peak is within the budget, however far below, and ours "
        f"within the budget. The same targets: {summary(cells[1])}"
    )
    text = "\n".join([lead, "", at_peak, "", *rows[0], "", at_budget, "", *rows[1]])
    print(text)
    write_section("Recomputation against torch's partitioner", "python benchmarks/bench_torch_partitioner.py", text)


if __name__ == "__main__":
    main()
