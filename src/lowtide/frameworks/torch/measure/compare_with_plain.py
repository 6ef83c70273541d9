"""Compare the results of planned calls with those of the user's own call."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from lowtide.engine.planning.measured import Agreement
from lowtide.frameworks.outputs import compare_outputs
from lowtide.frameworks.torch.measure.measure_captured import digest_of, measure_captured
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.rounding import largest_difference

_Results = Sequence[Any]


def compare_with_plain(captured: Captured, programs: Sequence[Callable[..., Any]], *, may_round: bool) -> Agreement:
    """Run programs whose results differed from the user's own call once more, and return by how much they differ.

    Two copies of all results are in memory, or up to six if the user's call differs from run to run. If plans may round
    and numbers differ by more than that, the user's call runs once more with inputs and state perturbed by one unit in
    the last place. The plan may differ by 64 times as much: optimizers divide gradients by their size, which enlarges
    differences.
    """

    def results(program: Callable[..., Any], *, last_digits: bool = False) -> _Results:
        return measure_captured(captured, program, keep_results=True, last_digits=last_digits, warm_up=False).results

    def run_plain() -> _Results:
        return results(captured.run_original)

    plain = run_plain()
    agreements: list[Agreement] = []
    for program in programs:
        planned = results(program)
        difference = largest_difference(plain, planned)
        is_near = may_round and difference.is_rounding
        if may_round and not is_near:
            usual = largest_difference(plain, results(captured.run_original, last_digits=True))
            is_near = difference.is_within_noise(usual)
        if is_near:
            agreement = Agreement(outputs_equal=False, largest_difference=difference.share, outputs_near=True)
        else:
            agreement = compare_outputs(plain, planned, run_plain, _difference)
        agreements.append(agreement)
    return max(agreements, key=lambda each: (each.verdict == "different", each.largest_difference or 0.0))


def _difference(one: _Results, other: _Results) -> float:
    if digest_of(one) == digest_of(other):
        return 0.0
    return max(largest_difference(one, other).share, sys.float_info.min)
