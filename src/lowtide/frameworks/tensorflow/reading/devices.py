"""Devices as memory spaces."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.errors import UsageError
from lowtide.core.units import given_bytes
from lowtide.engine.graph import Space
from lowtide.frameworks.tensorflow.graphs.attributes import texts
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef

_DEVICE = re.compile(r"(?:^|[/:])(?:device:)?(cpu|gpu|xla_cpu|xla_gpu|tpu)(?::(\d+|\*))?$", re.IGNORECASE)
_COLOCATED = "loc:@"


def short_name(device: str) -> str | None:
    """Return a device as "/gpu:0", or None."""
    found = _DEVICE.search(device)
    return None if found is None else f"/{found[1].lower()}:{0 if found[2] in (None, '*') else int(found[2])}"


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a graph."""

    spaces: Sequence[Space]
    by_node: Mapping[str, str]
    fallback: str
    """The device of all other nodes."""

    def name_of(self, node: NodeDef) -> str | None:
        """Return a node's device, None if there is only one."""
        return None if len(self.spaces) == 1 else self.by_node.get(node.name, self.fallback)

    def has_other_memory(self, name: str) -> bool:
        """Return whether a device has its own memory, not the host's."""
        return not name.startswith(("/cpu", "/xla_cpu"))

    def space_of(self, node: NodeDef) -> int:
        name = self.name_of(node)
        return 0 if name is None else next(place for place, space in enumerate(self.spaces) if space.name == name)


def devices_of(nodes: Sequence[NodeDef], capacities: Mapping[str, str | int]) -> Devices:
    """Return the devices of nodes, with capacities.

    A node without a device is on that of a node it is colocated with, else on the first device with a capacity. Raises
    UsageError for a capacity of an unknown or unused device.
    """
    by_node = {node.name: short for node in nodes if (short := short_name(node.device)) is not None}
    for node in nodes:
        if node.name not in by_node:
            for place in texts(node.attribute("_class")):
                if place.removeprefix(_COLOCATED) in by_node:
                    by_node[node.name] = by_node[place.removeprefix(_COLOCATED)]
    named = sorted(set(by_node.values()))
    given: dict[str, int] = {}
    for device, size in capacities.items():
        short = short_name(device)
        if short is None:
            raise UsageError(f"{device!r} is not a device; write it like /gpu:0")
        given[short] = given_bytes(size)
        if named and short not in named and len(by_node) == len(nodes):
            raise UsageError(f"no node is on device {short}; the graph has {', '.join(named)}")
    names = list(dict.fromkeys((*given, *sorted(named, key=lambda name: (not name.startswith("/gpu"), name)))))
    spaces = [Space(name=name, capacity_bytes=given.get(name)) for name in names] or [Space(name="device")]
    return Devices(spaces, by_node, names[0] if names else "device")
