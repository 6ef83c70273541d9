"""Grappler's rewrites of nodes."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.frameworks.tensorflow.graphs.attributes import (
    Shape,
    integer,
    of_bool,
    of_shape,
    of_text,
    of_texts,
    of_type,
    texts,
)
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import COPY_BACK, COPY_OUT
from lowtide.frameworks.tensorflow.reading.body import NodeBody, first_ready_order
from lowtide.frameworks.tensorflow.rewrites.edited_nodes import (
    RECOMPUTED,
    SWAPPED_IN,
    SWAPPED_OUT,
    TRIGGER,
    EditedNodes,
    node_of,
    with_node,
)


def _add_copy(nodes: EditedNodes, name: str, inputs: Sequence[str], waits: Sequence[str]) -> None:
    original = nodes.node(name)
    trigger = f"{TRIGGER}{name}"
    nodes.add(NodeDef.make(trigger, "NoOp", [f"^{other}" for other in waits], device=original.device))
    nodes.add(original.renamed(f"{RECOMPUTED}{name}", [*inputs, f"^{trigger}"]))


def recompute_late(nodes: EditedNodes, runs: Sequence[str]) -> list[str]:
    """Add a copy of every node that occurs twice in `runs`; return the copied names. O(runs + inputs).

    A copy waits for the node before it in `runs`.
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
            _add_copy(nodes, name, inputs, [before])
            copied[name] = None
    return list(copied)


def recompute_as_grappler(
    nodes: EditedNodes, body: NodeBody, groups: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[str]:
    """Add copies for groups of (recomputed nodes, targets) exactly as Grappler does.

    Source: RecomputeSubgraph.
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
            _add_copy(nodes, name, inputs, waits)
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
    first: dict[str, int] = {}
    for name in sorted(again, key=lambda name: -place[name]):
        own = [place[reader] for reader in readers[name] if reader in targets]
        first[name] = min((*own, *(first[reader] for reader in readers[name] if reader in first)))
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedInput:
    """An input that is swapped to the host and back; see `Swap`."""

    node: str
    number: int
    type: int
    out_trigger: str
    in_trigger: str


def copy_node(name: str, op: str, source: str, waits: Sequence[str], kind: int, group: str, device: str) -> NodeDef:
    """Return a copy op to the host or back; `group` names its colocation class."""
    inputs = [source, *(f"^{wait}" for wait in waits if wait != node_of(source))]
    return NodeDef.make(name, op, inputs, {"T": of_type(kind), "_class": of_texts([f"loc@{group}"])}, device)


def add_swap(nodes: EditedNodes, swap: SwappedInput) -> bool:
    """Add the nodes and triggers of a swap, unless they exist; return whether they were added.

    Source: BuildSwapPair.
    """
    value = f"{swap.node}_{swap.number}"
    out, back = f"{SWAPPED_OUT}{value}", f"{SWAPPED_IN}{value}"
    if out in nodes or back in nodes:
        return False
    node = nodes.node(swap.node)
    nodes.add(copy_node(out, COPY_OUT, nodes.inputs(swap.node)[swap.number], (), swap.type, value, node.device))
    nodes.add(copy_node(back, COPY_BACK, out, [swap.in_trigger], swap.type, value, node.device))
    nodes.set_attribute(swap.node, "_class", of_texts([*texts(node.attribute("_class")), f"loc@{value}"]))
    nodes.set_input(swap.node, swap.number, back)
    nodes.wait_for(swap.out_trigger, out)
    return True


def accumulate_in_nodes(nodes: EditedNodes, name: str, sizes: Shape, place: Mapping[str, int]) -> list[NodeDef]:
    """Replace a sum by an accumulation in `NAME/tmp_var`, and return the new nodes.

    The sum becomes the op that destroys the variable. Source: SchedulingPass.
    """
    node, inputs = nodes.node(name), nodes.inputs(name)
    values = [text for text in inputs if not text.startswith("^")]
    waits = [text for text in reversed(inputs) if text.startswith("^")]
    first = min(values, key=lambda text: place[node_of(text)])
    starts_at = place[node_of(first)]
    kind = of_type(integer(node.attribute("T")))
    variable, zeros, initializer = (f"{name}/tmp_var{ending}" for ending in ("", "_zeros", "_initializer"))
    early = [text for text in waits if place[node_of(text)] < starts_at]
    late = [text for text in waits if place[node_of(text)] >= starts_at]
    held = {"dtype": kind, "shape": of_shape(sizes), "var_name": of_text(variable)}
    unlocked = {"T": kind, "use_locking": of_bool(False), "validate_shape": of_bool(False)}
    made = [
        NodeDef.make(variable, "TemporaryVariable", [*early, f"^{node_of(first)}"], held, node.device),
        NodeDef.make(zeros, "ZerosLike", [first], {"T": kind}, node.device),
        NodeDef.make(initializer, "Assign", [variable, zeros], unlocked, node.device),
    ]
    locked = {"T": kind, "use_locking": of_bool(True)}
    steps = [
        NodeDef.make(f"{name}/tmp_var_accum_{number}", "AssignAdd", [initializer, text], locked, node.device)
        for number, text in enumerate(values)
    ]
    for each in (*made, *steps):
        nodes.add(each)
    ending = [initializer, *(f"^{each.name}" for each in steps), *late]
    destroyed = {"T": kind, "var_name": of_text(variable)}
    nodes.add(NodeDef.make(name, "DestroyTemporaryVariable", ending, destroyed, node.device))
    return [*made, *steps]
