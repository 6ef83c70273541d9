"""Why a budget is not met, in one sentence."""

from lowtide.recompute.floor import Floor
from lowtide.recompute.program import Program

_MOST_NAMED = 4


def explain_shortfall(program: Program, floor: Floor, budget: int, least_peak: int, bound: float) -> str:
    """Name the op and the buffers that alone need more than the budget, or say how close the best plan came."""
    graph = program.problem.graph
    where = graph.spaces[program.space].name
    if floor.peak_bytes <= budget:
        reason = "proven impossible for this order" if bound == float("inf") else "no proof that none fits"
        return (
            f"the best plan found needs {least_peak} bytes in {where}, {least_peak - budget} more than the "
            f"budget of {budget}; {reason}"
        )
    who = "inputs or outputs alone need" if floor.op is None else f"op {graph.op_names[floor.op]!r} alone needs"
    named = [
        f"{graph.buffer_names[buffer]} ({program.counted_sizes[buffer]})" for buffer in floor.buffers[:_MOST_NAMED]
    ]
    rest = list(floor.buffers[_MOST_NAMED:])
    if rest:
        named.append(f"{len(rest)} more ({int(program.counted_sizes[rest].sum())})")
    if floor.scratch_bytes:
        named.append(f"scratch and callees ({floor.scratch_bytes})")
    return (
        f"{who} {floor.peak_bytes} bytes in {where} whatever is run again, {floor.peak_bytes - budget} more than the "
        f"budget of {budget}; live then: {', '.join(named)}"
    )
