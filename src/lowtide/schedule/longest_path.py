"""memonger's source order."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPath:
    """Start the sources with the longest path to the end first, and run after each one what it makes possible.

    All sinks are joined to one target; every source's longest path to it, merged, makes a tree; walking the tree from
    the target, higher children first, meets the sources in the order in which they start. Ties go to program order, in
    the choice of a path, of a child, and among the ops that one source makes possible.

    Source: Caffe2 memonger, topological_sort_traversal_longest_path. Mended: each source picks its path on its own
    there, so that paths of equal length may not merge to a tree, and the order after a source is that of a hash set.
    Complexity: O(n log n + e). Guarantees: none on the peak; sizes are not looked at.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.longest_path(problem.native)
