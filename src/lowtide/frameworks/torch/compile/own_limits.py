"""What a plan may need, whatever the budget: what PyTorch's own partition of the same program does."""

from dataclasses import dataclass

from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.compile.read_program import ReadProgram


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """What a plan may need, whatever the budget: what PyTorch alone does."""

    peak: int
    between: int | None
    """Between the two passes; None where nothing large runs there."""
    others: int
    """What other graphs need meanwhile."""

    def hold(self, program: ReadProgram, result: Result) -> bool:
        """Tell whether a plan stays within, and within its budget."""
        return result.shortfall is None and not self.excess(program, result)

    def rank(self, program: ReadProgram, result: Result) -> tuple[bool, bool, float]:
        """Return what the better of two plans has less of."""
        excess, fits = self.excess(program, result), result.shortfall is None
        most = max(_first_peak(result), program.held_between(result.plan) + self.others)
        least = result.base_cost + result.extra_cost if fits and not excess else float(most)
        return excess > 0, not fits, float(excess) or least

    def excess(self, program: ReadProgram, result: Result) -> int:
        """Return the bytes by which a plan needs more."""
        more = max(0, _first_peak(result) - self.peak)
        between = 0 if self.between is None else program.held_between(result.plan) - self.between
        return max(more, between)


def _first_peak(result: Result) -> int:
    return next(iter(result.peak_bytes.values()))
