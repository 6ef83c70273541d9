"""A graph as Grappler sees it: every node is an op, every output a buffer."""

from collections.abc import Iterable, Mapping

from lowtide.engine.costs import price
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.tensorflow.graphs.attributes import integer, integers
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from lowtide.frameworks.tensorflow.grappler.pressure import virtual_order
from lowtide.frameworks.tensorflow.grappler.swaps import PCIE_BYTES_PER_SECOND
from lowtide.frameworks.tensorflow.operators import CONSTANTS, PLACEHOLDERS, SOURCES, VARIABLES
from lowtide.frameworks.tensorflow.reading.body import NodeBody, first_ready_order
from lowtide.frameworks.tensorflow.reading.devices import Devices
from lowtide.frameworks.tensorflow.reading.effects import effects_of
from lowtide.frameworks.tensorflow.shapes import Sizes

_PERSISTENT = CONSTANTS | VARIABLES
_NEVER_RECOMPUTED = ("Recomputed/", "RecomputeTrigger/")
_NANOSECOND = 1e-9


def node_graph(
    body: NodeBody,
    sizes: Sizes,
    devices: Devices,
    device: str,
    *,
    seconds: Mapping[str, float],
    may_all_rerun: bool = False,
) -> Graph:
    """Return all nodes as ops in the order of Grappler's virtual cluster.

    The memory spaces are `device`, the host, and all other devices. With `may_all_rerun`, ops with effects may be
    recomputed. Raises as `first_ready_order`.
    """
    costs = [max(seconds.get(node.name, 0.0), _NANOSECOND) for node in body.nodes]
    names = [node.name for node in body.nodes]
    inputs = [list(body.neighbors(node)) for node in range(len(names))]
    virtual = virtual_order(names, inputs, [round(cost * 1e9) for cost in costs])
    if len(virtual) < len(names):
        first_ready_order(body, [True] * len(names), ())  # raises an error that names the cycle
    of_nodes = {place: costs[place] for place in virtual}
    return _graph_of(body, sizes, devices, device, of_nodes, may_all_rerun=may_all_rerun)


def estimated_seconds(body: NodeBody, sizes: Sizes, devices: Devices) -> dict[str, float]:
    """Estimate seconds per node from bytes and floating-point operations."""
    order = first_ready_order(body, [True] * len(body.nodes), ())
    graph = _graph_of(body, sizes, devices, devices.spaces[0].name, dict.fromkeys(order, 1.0))
    prices: list[float] = price(graph, "eager").seconds.tolist()
    reads = graph.reads.offsets
    return {name: prices[op] if reads[op + 1] > reads[op] else _NANOSECOND for op, name in enumerate(graph.op_names)}


def _graph_of(
    body: NodeBody,
    sizes: Sizes,
    devices: Devices,
    device: str,
    costs: Mapping[int, float],
    *,
    may_all_rerun: bool = False,
) -> Graph:
    builder = GraphBuilder("nodes")
    capacity = next((space.capacity_bytes for space in devices.spaces if space.name == device), None)
    for name, size in (("device", capacity), ("host", None), ("elsewhere", None)):
        speeds = {other: PCIE_BYTES_PER_SECOND for other in ("device", "host") if other != name}
        builder.add_space(name, capacity_bytes=size, bandwidth_bytes_per_s=speeds)
    ports: dict[str, list[int]] = {}
    for (name, _), size in sizes.items():
        ports.setdefault(name, []).append(size or 0)
    buffers: dict[tuple[int, int], int] = {}
    op_of: dict[int, int] = {}
    for place, cost in costs.items():
        node = body.nodes[place]
        space = 0 if (devices.name_of(node) or device) == device else 2
        is_persistent = node.op in _PERSISTENT
        lifetime = Lifetime.PERSISTENT if is_persistent else Lifetime.INTERMEDIATE
        written = [
            builder.add_buffer(f"{node.name}:{port}", size, lifetime, space=space)
            for port, size in enumerate(ports.get(node.name, ()))
        ]
        buffers.update(((place, port), buffer) for port, buffer in enumerate(written))
        effects = None if node.op in SOURCES else effects_of(node, calls=False)
        has_effects = effects is not None and (effects.is_fixed or bool(effects.mutated))
        op_of[place] = builder.add_op(
            node.name,
            node.op,
            reads=[buffers[port] for port in body.data[place] if port in buffers],
            writes=[] if is_persistent else written,
            after=list(dict.fromkeys(op_of[source] for source in body.controls[place])),
            pure=may_all_rerun or not (has_effects or node.name.startswith(_NEVER_RECOMPUTED)),
            cost=cost,
            device=devices.name_of(node),
        )
    return builder.build()


def hints_of(body: NodeBody, fed: Iterable[str]) -> Hints:
    swap: dict[str, list[int]] = {}
    for node in body.nodes:
        value = node.attribute("_swap_to_host")
        if value is not None:
            swap[node.name] = integers(value) or [integer(value)]
    return Hints(
        recompute=frozenset(node.name for node in body.nodes if node.attribute("_recompute_hint") is not None),
        swap=swap,
        fed=frozenset({node.name for node in body.nodes if node.op in PLACEHOLDERS} | set(fed)),
    )
