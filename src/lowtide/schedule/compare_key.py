"""Which of two orders costs less memory."""

from lowtide.analysis import Evaluation, Problem


def compare_key(problem: Problem, evaluation: Evaluation) -> tuple[int, int]:
    """Return what orders of one problem are compared by, less is better; both parts in bytes.

    First what does not fit: the excess over the capacity of every memory space, persistent buffers included. Then the
    sum of the peaks of all spaces.
    """
    persistent = problem.graph.persistent_bytes()
    excess = 0
    peaks: list[int] = evaluation.peaks.tolist()
    for space, peak in zip(problem.graph.spaces, peaks, strict=True):
        if space.capacity_bytes is not None:
            excess += max(0, persistent[space.name] + peak - space.capacity_bytes)
    return excess, sum(peaks)
