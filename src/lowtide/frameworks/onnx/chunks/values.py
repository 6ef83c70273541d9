"""Values and nodes of a model's main graph."""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto

from lowtide.frameworks.onnx.operators.nodes import default_opset, input_names
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.shapes.tensors import array_of, short_constants, static_shape


class MainValues:
    """Values by name, nodes by position."""

    def __init__(self, model: ModelProto, translation: Translation) -> None:
        self.nodes: Sequence[NodeProto] = model.graph.node
        self.reads = [tuple(dict.fromkeys(input_names(node))) for node in self.nodes]
        self.writer = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for place, names in enumerate(self.reads):
            for name in names:
                self.readers.setdefault(name, []).append(place)
        self.outputs = frozenset(value.name for value in model.graph.output)
        self.opset = default_opset(model)
        self._values = translation.values
        self._sizes = translation.graph.sizes.tolist()
        self._persistent = translation.graph.persistent.tolist()
        self._constants = short_constants(model.graph)
        scratch = translation.graph.scratch.tolist()
        self._scratch = {
            place: scratch[op] for op, places in enumerate(translation.nodes_of_ops) for place in places[:1]
        }

    def shape(self, name: str) -> Sequence[int] | None:
        value = self._values.get(name)
        return None if value is None else static_shape(value.type)

    def element_type(self, name: str) -> int:
        return self._values[name].type.tensor_type.elem_type

    def numbers(self, name: str) -> list[int] | None:
        """Return a short constant's integers, None for other values."""
        tensor = self._constants.get(name)
        array = None if tensor is None else array_of(tensor)
        return None if array is None or array.dtype.kind not in "iu" else array.reshape(-1).tolist()

    def buffer_of(self, name: str) -> int:
        return self._values[name].buffer

    def bytes_of(self, names: Sequence[str]) -> int:
        """Return bytes, each buffer once, without weights."""
        buffers = {self.buffer_of(name) for name in names if name in self._values}
        return sum(self._sizes[buffer] for buffer in buffers if not self._persistent[buffer])

    def scratch(self, place: int) -> int:
        return self._scratch.get(place, 0)

    def needed(self, place: int) -> int:
        """Return the bytes read, written and used as scratch."""
        return self.bytes_of([*self.reads[place], *filter(None, self.nodes[place].output)]) + self.scratch(place)
