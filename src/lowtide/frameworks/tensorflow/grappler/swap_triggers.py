"""When swapped values leave and come back, as Grappler decides it."""

from collections.abc import Collection, Sequence

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.kinds import BRANCH_KINDS, FRAME_KINDS
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes


def swap_in_trigger(
    graph: Graph, nodes: Nodes, ends: Sequence[float], op: OpId, swapped: Collection[OpId], seconds: float
) -> OpId | None:
    """Return the op after which values come back for `op`, or None where there is none.

    Of the ancestors of its other inputs that end before the transfer must start, it is the last to end. `ends` are
    completion times, `swapped` the ops whose results are swapped, `seconds` what the transfer takes. The search never
    goes past an op at the border of a loop or branch. Source: FindSwapInTrigger. O(n log n + e).
    """
    inputs = nodes.inputs[op]
    latest = max((ends[source] for source in inputs), default=0.0) - seconds
    waiting = [source for source in inputs if source not in swapped]
    seen = set(waiting)
    found: OpId | None = None
    while waiting:
        source = waiting.pop()
        if graph.op_kinds[source] in FRAME_KINDS or graph.op_kinds[source] in BRANCH_KINDS:
            continue
        if ends[source] < latest:
            if found is None or (ends[source], source) > (ends[found], found):
                found = source
        else:
            waiting += [node for node in nodes.inputs[source] if node not in seen]
            seen.update(nodes.inputs[source])
    return found


def swap_out_trigger(nodes: Nodes, ends: Sequence[float], op: OpId, buffer: BufferId) -> OpId | None:
    """Return the other reader of a buffer that ends first, or None where there is none.

    That reader waits until the buffer has left. Source: FindSwapOutTrigger.
    """
    others = [reader for reader, _ in nodes.readers[buffer] if reader != op]
    return min(others, key=lambda reader: (ends[reader], reader), default=None)
