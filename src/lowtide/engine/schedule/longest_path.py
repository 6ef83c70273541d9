"""The longest-path order of Caffe2 memonger."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPath:
    """Start the sources with the longest path to the end first; after each, run the ops that it makes ready.

    The longest paths from all sources to a common target form a tree. A walk from the target, higher children first,
    gives the order of sources. All ties fall as in the original.

    Source: Caffe2 memonger, topological_sort_traversal_longest_path, as in torch 1.11.0, with networkx 3. Mended: the
    original fails where paths split and meet again. There, and beyond `max_work`, the order is that of
    `LongestPathMerged`. Complexity: O(s n e) at worst for s sources, usually one walk of its followers per source.
    Guarantees: none on the peak; sizes are ignored.
    """

    max_work: int = 200_000_000
    """Limit on examined edges, about 300,000,000 per second."""

    def order(self, problem: Problem) -> Order:
        return _native.longest_path(problem.native, self.max_work)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPathMerged:
    """Apply the rule of `LongestPath` to merged paths, with all ties in program order.

    Source: lowtide, after Caffe2 memonger, topological_sort_traversal_longest_path.
    Complexity: O(n log n + e). Guarantees: none on the peak; sizes are ignored.
    """

    def order(self, problem: Problem) -> Order:
        return _native.longest_path_merged(problem.native)
