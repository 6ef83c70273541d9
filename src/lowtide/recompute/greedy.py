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
