"""Grappler's recomputation in nodes: copies `Recomputed/NAME` that wait for a no-op `RecomputeTrigger/NAME`."""

from collections import deque
from collections.abc import Mapping, Sequence

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.reading.body import NodeBody, first_ready_order
from lowtide.frameworks.tensorflow.rewrites.edited import EditedNodes
from lowtide.frameworks.tensorflow.rewrites.names import RECOMPUTED, TRIGGER, node_of, with_node


def add_copy(nodes: EditedNodes, name: str, inputs: Sequence[str], waits: Sequence[str]) -> None:
    """Add the copy of a node, and the trigger that it waits for, which waits for others."""
    original = nodes.node(name)
    trigger = f"{TRIGGER}{name}"
    nodes.add(NodeDef.make(trigger, "NoOp", [f"^{other}" for other in waits], device=original.device))
    nodes.add(original.renamed(f"{RECOMPUTED}{name}", [*inputs, f"^{trigger}"]))


def recompute_late(nodes: EditedNodes, runs: Sequence[str]) -> list[str]:
    """Add copies for what runs twice in a sequence of nodes; returns the names of what was copied.

    A copy waits for the node that runs right before it in the sequence, so that it cannot run in the forward pass; what
    runs after it reads it. O(runs + inputs).
    """
    copied: dict[str, None] = {}
    ran: set[str] = set()
    before: str | None = None
    for name in runs:
        if name not in ran:
            for number, text in enumerate(nodes.node(name).inputs):
                if not text.startswith("^") and node_of(text) in copied:
                    nodes.set_input(name, number, with_node(text, f"{RECOMPUTED}{node_of(text)}"))
            ran.add(name)
            before = name
        elif name not in copied and before is not None:
            inputs = [
                with_node(text, f"{RECOMPUTED}{node_of(text)}")
                if node_of(text) in copied and not text.startswith("^")
                else text
                for text in nodes.node(name).inputs
            ]
            add_copy(nodes, name, inputs, [before])
            copied[name] = None
    return list(copied)


def recompute_as_grappler(
    nodes: EditedNodes, body: NodeBody, groups: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[str]:
    """Add copies for groups (what is computed again, what reads it) to the letter of the original.

    The triggers of a group are a chain, in the order of the first reader of each copy; each waits for those inputs of
    the readers that come before that reader. Only inputs that name a node's first output are redirected.
    Source: memory_optimizer.cc of TensorFlow, RecomputeSubgraph.
    """
    order = first_ready_order(body, [True] * len(body.nodes), ())
    place = {body.nodes[node].name: number for number, node in enumerate(order)}
    readers = _readers(body)
    copied: list[str] = []
    for again, targets in groups:
        first_reader = _first_readers(again, set(targets), place, readers)
        waiting = deque(
            sorted(
                (place[node_of(text)], node_of(text))
                for target in targets
                for text in nodes.inputs(target)
                if node_of(text) in place and node_of(text) not in first_reader
            )
        )
        before: str | None = None
        for name in sorted(sorted(again, reverse=True), key=first_reader.__getitem__):
            waits = [] if before is None else [before]
            while waiting and waiting[0][0] < first_reader[name]:
                waits.append(waiting.popleft()[1])
            inputs = [f"{RECOMPUTED}{text}" if text in first_reader else text for text in nodes.node(name).inputs]
            add_copy(nodes, name, inputs, waits)
            before = f"{TRIGGER}{name}"
            copied.append(name)
        for target in targets:
            for number, text in enumerate(nodes.inputs(target)):
                if text in first_reader:
                    nodes.set_input(target, number, f"{RECOMPUTED}{text}")
    return copied


def _readers(body: NodeBody) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {node.name: [] for node in body.nodes}
    for number, node in enumerate(body.nodes):
        for source in dict.fromkeys(body.neighbors(number)):
            found[body.nodes[source].name].append(node.name)
    return found


def _first_readers(
    again: Sequence[str], targets: set[str], place: Mapping[str, int], readers: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Return, per node that is computed again, the place of the first target that needs it, over other copies too."""
    first: dict[str, int] = {}
    for name in sorted(again, key=lambda name: -place[name]):
        own = [place[reader] for reader in readers[name] if reader in targets]
        first[name] = min((*own, *(first[reader] for reader in readers[name] if reader in first)))
    return first
