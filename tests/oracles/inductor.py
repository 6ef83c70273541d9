"""The real functions of torch._inductor.memory, fed with a graph or with an export."""

from dataclasses import dataclass, field
from typing import Any

from torch._inductor import config, memory
from torch.utils._ordered_set import OrderedSet

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Lifetime
from tests.oracles.slow_view import SlowView


@dataclass(eq=False)
class Buffer:
    """A buffer as Inductor's scheduler sees it."""

    name: str
    mpi_buffer: memory.MemoryPlanningInfoForBuffer

    def get_name(self) -> str:
        return self.name


@dataclass(eq=False)
class Dependency:
    """A read, by name."""

    name: str


@dataclass(eq=False)
class Node:
    """An op as Inductor's scheduler sees it; its successors wait for one buffer name of its own."""

    op: int
    outputs: list[Buffer] = field(default_factory=list)
    unmet_dependencies: list[Dependency] = field(default_factory=list)
    mpi_node: memory.MemoryPlanningInfoForNode = field(default_factory=memory.MemoryPlanningInfoForNode)
    own_names: list[str] = field(default_factory=list)

    def get_outputs(self) -> list[Buffer]:
        return self.outputs

    def get_buffer_names(self) -> list[str]:
        return self.own_names or [f"done{self.op}"]

    def get_name(self) -> str:
        return f"op{self.op}"


class Inductor:
    """A problem in Inductor's terms, and what its functions say about it."""

    def __init__(self, problem: Problem) -> None:
        view = SlowView.of(problem)
        self.nodes = [Node(op) for op in range(view.n_ops)]
        self.inputs: dict[str, memory.FreeableInputBuffer] = {}
        self.buffers: dict[str, Buffer] = {}
        self.outputs: OrderedSet[str] = OrderedSet()
        known: dict[int, Buffer | memory.FreeableInputBuffer] = {}
        for buffer, size in enumerate(view.sizes):
            name = f"buf{buffer}"
            users = OrderedSet([self.nodes[user] for user in view.users[buffer]])
            info = memory.MemoryPlanningInfoForBuffer(size, size, users, users)
            if view.producers[buffer] >= 0:
                known[buffer] = self.buffers[name] = Buffer(name, info)
                self.nodes[view.producers[buffer]].outputs.append(self.buffers[name])
                if view.lifetimes[buffer] == Lifetime.OUTPUT:
                    self.outputs.add(name)
            elif view.lifetimes[buffer] == Lifetime.DONATED and users:
                info.size_alloc = 0
                known[buffer] = self.inputs[name] = memory.FreeableInputBuffer(name, info)
        for node in self.nodes:
            predecessors = view.predecessors[node.op]
            node.unmet_dependencies = [Dependency(f"done{op}") for op in predecessors]
            node.mpi_node = memory.MemoryPlanningInfoForNode(
                index=node.op,
                size=view.defined(node.op),
                pred_buffers=OrderedSet([known[buffer] for buffer in view.touches[node.op] if buffer in known]),
                pred_nodes=OrderedSet([self.nodes[op] for op in predecessors]),
                succ_nodes=OrderedSet([self.nodes[op] for op in view.successors[node.op]]),
            )

    def lpmf(self, threshold: int = 0) -> list[int]:
        """Order of topological_sort_lpmf."""
        with config.patch(size_threshold_for_succ_based_strategy=threshold):
            order = memory.topological_sort_lpmf(self.nodes, self.inputs, self.buffers, self.outputs)
        return [node.op for node in order]

    def bfs(self) -> list[int]:
        """Order of topological_sort_bfs."""
        return [node.op for node in memory.topological_sort_bfs(self.nodes)]

    def dfs(self) -> list[int]:
        """Order of topological_sort_dfs."""
        return [node.op for node in memory.topological_sort_dfs(self.nodes)]

    def peak(self, order: list[int]) -> int:
        """Peak by estimate_peak_memory."""
        return memory.estimate_peak_memory([self.nodes[op] for op in order], self.inputs, self.outputs)[0]

    def peak_by_phases(self, order: list[int]) -> int:
        """Peak by estimate_peak_memory_allocfree."""
        return memory.estimate_peak_memory_allocfree([self.nodes[op] for op in order], self.inputs, self.outputs)[0]


class InductorOfExport:
    """An export in Inductor's terms, as it has them when it writes it: edges and bytes by buffer."""

    def __init__(self, document: dict[str, Any]) -> None:
        described = {buffer["name"]: buffer for buffer in document["buffers"]}
        places = {name: place for place, node in enumerate(document["nodes"]) for name in node["buffer_names"]}
        self.nodes = [Node(place) for place in range(len(document["nodes"]))]
        self._names = [node["name"] for node in document["nodes"]]
        readers: dict[str, list[Node]] = {name: [] for name in described}
        for place, node in enumerate(document["nodes"]):
            for name in dict.fromkeys(dep for own in node["buffer_names"] for dep in described[own]["deps"]):
                readers[name].append(self.nodes[place])
        known: dict[str, Any] = {}
        for name, buffer in described.items():
            users = OrderedSet(readers[name])
            info = memory.MemoryPlanningInfoForBuffer(buffer["size_alloc"], buffer["size_free"], users, users)
            known[name] = memory.FreeableInputBuffer(name, info) if buffer["is_input"] else Buffer(name, info)
        for place, row in enumerate(document["nodes"]):
            deps = dict.fromkeys(dep for own in row["buffer_names"] for dep in described[own]["deps"])
            node = self.nodes[place]
            node.own_names = row["buffer_names"]
            node.unmet_dependencies = [Dependency(dep) for dep in deps if dep in places]
            before = OrderedSet(self.nodes[places[dep]] for dep in deps if dep in places and places[dep] != place)
            node.mpi_node = memory.MemoryPlanningInfoForNode(
                index=place,
                size=sum(described[own]["size_alloc"] for own in row["buffer_names"]),
                pred_buffers=OrderedSet(known[dep] for dep in deps),
                pred_nodes=before,
            )
        for node in self.nodes:
            for earlier in node.mpi_node.pred_nodes:
                earlier.mpi_node.succ_nodes.add(node)

    def bfs(self) -> list[str]:
        """Names of the nodes in the order of topological_sort_bfs."""
        return [self._names[node.op] for node in memory.topological_sort_bfs(self.nodes)]

    def dfs(self) -> list[str]:
        """Names of the nodes in the order of topological_sort_dfs."""
        return [self._names[node.op] for node in memory.topological_sort_dfs(self.nodes)]
