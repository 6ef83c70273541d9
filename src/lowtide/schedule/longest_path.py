"""memonger's source order: as it is there, and with paths that merge."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPath:
    """Start the sources with the longest path to the end first, and run after each one what it makes possible.

    All sinks are joined to one target; every source's longest path to it, merged, makes a tree; walking the tree from
    the target, higher children first, meets the sources in the order in which they start.

    Ties fall as they do in the original: among equal paths to the op that first gave the next one its final length in
    a queue of improved ops, a new path a source; among equally high children to the one whose path was merged last.
    What may run goes before any new source: first what follows the source listed last, and of that the op that stands
    last in the hash set of what follows it.

    Source: Caffe2 memonger, topological_sort_traversal_longest_path, as torch 1.11.0 has it, with networkx 3. Mended:
    where paths part and meet again, so that they make no tree, the original fails; there, and where ties need more than
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
