"""Dropping what costs least for the bytes it frees: milliseconds, the start of every search and its fallback."""

from lowtide.recompute.program import Cuts, Program


def drop_until_it_fits(program: Program, cuts: Cuts, budget_bytes: int, max_work: int) -> tuple[bool, Cuts]:
    """Drop more than the given cuts do until the peak is within the budget, then keep again what need not go.

    At the moment of the peak, the buffers that are resident and idle are ranked by the cost of making them again per
    byte; the best few are tried in a simulation, and the one that lowers the bytes over budget, summed over the plan,
    for the least extra cost is dropped. Returns whether the budget was met, and the cuts it led to; where they do not
    fit, dropping more did not help or the work was used up. O(drops * accesses of the plan), native;
    `max_work` limits the accesses played.
    """
    fits, moments, listed = program.native.fit(cuts.moments, cuts.listed.ravel(), budget_bytes, max_work)
    return fits, Cuts(moments, listed.reshape(-1, 2))


def descend_until_it_fits(
    program: Program, cuts: Cuts, budget_bytes: int, step: float, max_work: int
) -> tuple[bool, Cuts]:
    """Drop more in steps: each time until the peak is some way lower, given as a factor below 1, down to the budget.

    What is worth dropping for a peak slightly lower often leads on to one far lower, where aiming for that at once gets
    stuck, since bytes over a far budget hardly tell one choice from another. Ends where a step lowers the peak no
    more. Returns what `drop_until_it_fits` does, at no more than `max_work` for all steps.
    """
    started = program.native.work
    peak = program.execute(cuts).peak_bytes
    while peak > budget_bytes and program.native.work - started < max_work:
        left = max_work - (program.native.work - started)
        _, more = drop_until_it_fits(program, cuts, max(budget_bytes, int(peak * step)), left)
        lower = program.execute(more).peak_bytes
        if lower >= peak:
            break
        cuts, peak = more, lower
    return peak <= budget_bytes, cuts
