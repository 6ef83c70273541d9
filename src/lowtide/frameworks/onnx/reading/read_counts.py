"""How often the storage of a value is read, whatever names it goes by.

ONNX Runtime computes a result in the storage of an input as soon as nobody else needs that input. Where the node is
the only one that ever reads it, this happens in every order: then the runtime really overwrites the value.
"""

from collections import Counter
from collections.abc import Sequence

from onnx import GraphProto

from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS, METADATA, VIEWS


class ReadCounts:
    """Reads of each value by nodes. A read through a view counts for its base; taking a shape does not count."""

    def __init__(self, graph: GraphProto, inputs: Sequence[Sequence[str]]) -> None:
        """`inputs` holds everything each node reads, what its subgraphs capture included."""
        outputs = {value.name for value in graph.output}
        consumed = outputs.union(*inputs)
        computed = {name for node in graph.node if operator_of(node) not in CONSTANTS for name in node.output}
        self._bases: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        late: set[str] = set()
        for node, names in zip(graph.node, inputs, strict=True):
            operator = operator_of(node)
            if operator in VIEWS and node.output[0] not in outputs:
                base, *operands = names
                self._bases[node.output[0]] = self._base(base)
                if base in late or computed.intersection(operands):
                    late.add(node.output[0])
                self._counts.update(operands)
                if node.output[0] not in consumed:
                    self._counts[self._base(base)] += 1
            elif operator not in METADATA or names[0] in late:
                self._counts.update(map(self._base, names))

    def __getitem__(self, name: str) -> int:
        """Return how many times nodes read the storage of a value."""
        return self._counts[self._base(name)]

    def _base(self, name: str) -> str:
        return self._bases.get(name, name)
