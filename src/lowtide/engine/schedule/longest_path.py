"""memonger's source order: as it is there, and with paths that merge."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPath:
    """Start the sources with the longest path to the end first, and run after each one what it makes possible.

    All sinks are joined to one target. Every source has a longest path to it; merged, these paths make a tree. A walk
    of the tree from the target, higher children first, meets the sources in the order in which they start. Ops that are
    ready run before any new source.

    Ties fall as they do in the original. Of equally long paths it takes the one whose op first gave the next op its
    final length, in a queue of improved ops that starts anew for every source. Of equally high children it takes the
    one whose path was merged last. Of ready ops it takes those that follow the source listed last, and of these the op
    that stands last in the hash set of what follows that source.

    Source: Caffe2 memonger, topological_sort_traversal_longest_path, as torch 1.11.0 has it, with networkx 3. Mended:
    where paths part and meet again, they make no tree, and the original fails. There, and where ties need more than
    `max_work`, the order is that of `LongestPathMerged`.
    Complexity: O(s n e) at worst for s sources; as a rule one walk, a source, of what follows it.
    Guarantees: none on the peak; sizes are not looked at.
    """

    max_work: int = 200_000_000
    """How many edges may be looked at; some 300,000,000 a second."""

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.longest_path(problem.native, self.max_work)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPathMerged:
    """The rule of `LongestPath` on paths that always merge, with every tie in program order.

    An op has one longest path, whichever source it is reached from, so that the paths always make a tree. Ties go to
    program order in the choice of a path, of a child, and among the ops that one source makes possible.

    Source: lowtide's own, after Caffe2 memonger, topological_sort_traversal_longest_path.
    Complexity: O(n log n + e). Guarantees: none on the peak; sizes are not looked at.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.longest_path_merged(problem.native)
