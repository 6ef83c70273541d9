"""What finding parts of a graph to compute in chunks asks of its values: shapes, bytes, who writes and who reads."""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto

from lowtide.frameworks.onnx.operators.nodes import domain_of, input_names
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.shapes.short_tensors import array_of, short_constants
from lowtide.frameworks.onnx.shapes.sizes import static_shape


class MainValues:
    """The values of a model's main graph by name, and the nodes around them by place."""

    def __init__(self, model: ModelProto, translation: Translation) -> None:
        """Take a model and its reading."""
        self.nodes: Sequence[NodeProto] = model.graph.node
        self.reads = [tuple(dict.fromkeys(input_names(node))) for node in self.nodes]
        self.writer = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for place, names in enumerate(self.reads):
            for name in names:
                self.readers.setdefault(name, []).append(place)
        self.outputs = frozenset(value.name for value in model.graph.output)
        self.opset = next((entry.version for entry in model.opset_import if not domain_of(entry.domain)), 1)
        self._values = translation.values
        self._sizes = translation.graph.sizes.tolist()
        self._persistent = translation.graph.persistent.tolist()
        self._constants = short_constants(model.graph)
        scratch = translation.graph.scratch.tolist()
        self._scratch = {
            place: scratch[op] for op, places in enumerate(translation.nodes_of_ops) for place in places[:1]
        }

    def shape(self, name: str) -> Sequence[int] | None:
        """Return the sizes of a value, None where they are not known."""
        value = self._values.get(name)
        return None if value is None else static_shape(value.type)

    def element_type(self, name: str) -> int:
        """Return the type of a value's elements."""
        return self._values[name].type.tensor_type.elem_type

    def numbers(self, name: str) -> list[int] | None:
        """Return the whole numbers of a short constant, None for any other value."""
        tensor = self._constants.get(name)
        array = None if tensor is None else array_of(tensor)
        return None if array is None or array.dtype.kind not in "iu" else array.reshape(-1).tolist()

    def buffer_of(self, name: str) -> int:
        """Return the buffer that a value lies in; that of a view is its base's."""
        return self._values[name].buffer

    def is_weight(self, name: str) -> bool:
        """Return whether a value is there before a run begins and after it ends."""
        return self._persistent[self.buffer_of(name)]

    def bytes_of(self, names: Sequence[str]) -> int:
        """Return the bytes of what values lie in, each counted once; weights count nothing."""
        buffers = {self.buffer_of(name) for name in names if name in self._values}
        return sum(self._sizes[buffer] for buffer in buffers if not self._persistent[buffer])

    def scratch(self, place: int) -> int:
        """Return the workspace of a node in bytes."""
        return self._scratch.get(place, 0)

    def needed(self, place: int) -> int:
        """Return what a node needs at once in any order, in bytes: what it reads, writes and works in."""
        return self.bytes_of([*self.reads[place], *filter(None, self.nodes[place].output)]) + self.scratch(place)
