"""Grappler's own estimate of the peak: of programs, of what its recomputation makes of them, and of our plans."""

import json
from dataclasses import dataclass
from pathlib import Path

from results import write_section

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "grappler_estimates.json"
CONVOLUTIONS = ("plain", "deep", "pooling", "residual")
UNCHANGED = 0.001
"""A pass that lowers the estimate by less than this share leaves it as it is."""


@dataclass(frozen=True)
class Estimates:
    """Estimates of the peak in bytes for one recorded network with its gradients."""

    network: str
    program: int
    grappler: int
    ours: int
    within: int
    extra_cost: float
    """Of the plan within a budget, in run times of the program."""

    @property
    def asked_for(self) -> bool:
        """Whether it is a convolution net that Grappler's pass does not help."""
        return self.network in CONVOLUTIONS and self.grappler >= (1 - UNCHANGED) * self.program

    @property
    def lowered(self) -> bool:
        """Whether our plan within a budget has a lower estimate than the program."""
        return self.within < (1 - UNCHANGED) * self.program

    def line(self) -> str:
        """The row of the table."""
        target = ("met" if self.lowered else "missed") if self.asked_for else ""
        estimates = (self.grappler, self.ours, self.within)
        shares = [f"{estimate:,} ({estimate / self.program:.1%})" for estimate in estimates]
        return f"| {self.network} | {self.program:,} | {' | '.join(shares)} | {self.extra_cost:.1%} | {target} |"


def main() -> None:
    """Print the recorded estimates and write the section into RESULTS.md."""
    rows = [
        Estimates(*(row[key] for key in ("name", "program", "grappler", "ours", "within", "extra_cost")))
        for row in json.loads(RECORDED.read_bytes())
    ]
    asked = [row for row in rows if row.asked_for]
    lead = (
        "Peak in bytes as Grappler's cost model estimates it (TensorFlow 2.21): of the program with its gradients, "
        'after its own pass at level "recomputation", of our plan by the rules of that level, and of the plan of '
        '`minimize(budget="80%", allow={"recompute", "reorder"})`, whose extra run time is by Grappler\'s own prices. '
        "Grappler counts a buffer until the op after its last reader has allocated, in whole microseconds, so that its "
        "figures are above ours. "
        "Recorded by `tests/oracles/estimate_with_grappler.py`; a test holds the recorded runs against today's plans."
    )
    summary = f"Lowered on {sum(row.lowered for row in asked)} of {len(asked)} convolution nets where Grappler's pass "
    summary += "does not lower it."
    head = ["network", "program", "after Grappler's pass", "by its rules", "within 80%", "extra run time", "target"]
    table = [f"| {' | '.join(head)} |", "|---|--:|--:|--:|--:|--:|---|", *(row.line() for row in rows)]
    print("\n".join([summary, "", *table]))
    text = "\n".join([lead, "", summary, "", *table])
    write_section("Recomputation in Grappler's own estimate", "python benchmarks/bench_grappler_estimate.py", text)


if __name__ == "__main__":
    main()
