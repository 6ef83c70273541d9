"""Ops that a plan recomputes."""

from collections import Counter

from lowtide.engine.plan import Run
from lowtide.engine.planning.result import Result


def recomputed_kinds(result: Result) -> set[str]:
    """Return the kinds of the ops that run more than once."""
    runs = Counter(step.op for step in result.plan.steps() if isinstance(step, Run))
    return {result.graph.op_kinds[op] for op, count in runs.items() if count > 1}
