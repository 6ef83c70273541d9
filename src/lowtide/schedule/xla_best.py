"""XLA's default: the best of its three."""

from dataclasses import dataclass

from lowtide.analysis import Problem
from lowtide.analysis.problem import Order
from lowtide.schedule.best_of import best_of
from lowtide.schedule.postorder import Postorder
from lowtide.schedule.xla_dfs import XlaDfs
from lowtide.schedule.xla_list import XlaList


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaBest:
    """The least peak of list, depth-first and post-order, in this preference.

    Source: XLA, hlo_memory_scheduler.cc, DefaultMemoryScheduler. Where in-place pairs are allowed, the simulation that
    decides takes them, as XLA's heap simulator shares buffers.
    Complexity: O((n + e) log n). Guarantees: never worse than any of the three.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (XlaList(), XlaDfs(), Postorder()))
