"""What users tell Grappler by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Attributes of nodes in TensorFlow, given here by op name."""

    recompute: frozenset[str] = frozenset()
    """`_recompute_hint`: ops that may be computed again."""
    swap: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """`_swap_to_host`: per op, which of its reads, counted from 0, shall come back from the host for it."""
    fed: frozenset[str] = frozenset()
    """Ops whose results the caller feeds; they are never computed again."""

    def check(self, graph: Graph) -> None:
        """Raise UsageError for an op that the graph does not have, or a read that an op does not have."""
        places = {name: op for op, name in enumerate(graph.op_names)}
        for name in sorted({*self.recompute, *self.swap, *self.fed}):
            if name not in places:
                raise UsageError(f"a hint names op {name!r}, which graph {graph.name!r} does not have")
        for name, inputs in self.swap.items():
            count = len(graph.reads[places[name]])
            for read in inputs:
                if not 0 <= read < count:
                    raise UsageError(
                        f"a swap hint names read {read} of op {name!r}, which has {count} reads, counted from 0"
                    )
