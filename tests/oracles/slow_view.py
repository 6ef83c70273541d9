"""A graph as plain lists and sets, for oracles that recompute everything from its definition."""

from dataclasses import dataclass

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Lifetime


@dataclass(frozen=True)
class SlowView:
    """What the oracles look at; everything is per op or per buffer."""

    n_ops: int
    sizes: list[int]
    lifetimes: list[int]
    producers: list[int]
    names: list[str]
    reads: list[list[int]]
    allocates: list[list[int]]
    touches: list[list[int]]
    predecessors: list[list[int]]
    successors: list[list[int]]
    users: list[list[int]]
    scratch: list[int]

    @classmethod
    def of(cls, problem: Problem) -> "SlowView":
        """Unpack a problem."""
        graph, structure = problem.graph, problem.graph.structure
        return cls(
            n_ops=graph.n_ops,
            sizes=graph.sizes.tolist(),
            lifetimes=graph.lifetimes.tolist(),
            producers=structure.producers.tolist(),
            names=list(graph.op_names),
            reads=list(graph.reads),
            allocates=list(structure.allocates),
            touches=list(structure.touches),
            predecessors=list(structure.predecessors),
            successors=list(structure.successors),
            users=list(structure.users),
            scratch=problem.transient.sum(axis=1).tolist(),
        )

    def freeable(self, buffer: int) -> bool:
        """Whether the buffer goes away after its last use."""
        return self.lifetimes[buffer] in (Lifetime.DONATED, Lifetime.INTERMEDIATE)

    def ready(self, has_run: set[int]) -> list[int]:
        """The ops that may run next, in program order."""
        return [
            op for op in range(self.n_ops) if op not in has_run and all(p in has_run for p in self.predecessors[op])
        ]

    def n_users(self, op: int) -> int:
        """How many ops use what this op allocates."""
        return len({user for buffer in self.allocates[op] for user in self.users[buffer]})

    def defined(self, op: int) -> int:
        """Bytes the op allocates."""
        return sum(self.sizes[buffer] for buffer in self.allocates[op])

    def operands(self, op: int) -> list[int]:
        """The ops whose buffers this op reads, in reading order."""
        producers = dict.fromkeys(self.producers[buffer] for buffer in self.reads[op])
        return [producer for producer in producers if producer not in (-1, op)]
