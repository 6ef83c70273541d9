"""The best of several orders."""

from collections.abc import Sequence

from lowtide.analysis import Problem
from lowtide.analysis.problem import Order
from lowtide.schedule.compare_key import compare_key
from lowtide.schedule.scheduler import Scheduler


def best_of(problem: Problem, schedulers: Sequence[Scheduler]) -> Order:
    """Return the order with the least memory by simulation; the earlier scheduler wins a tie."""
    orders = (scheduler.order(problem) for scheduler in schedulers)
    return min(orders, key=lambda order: compare_key(problem.graph, problem.evaluate(order).peaks.tolist()))
