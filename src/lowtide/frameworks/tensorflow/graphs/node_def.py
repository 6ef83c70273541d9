"""One node of a graph."""

from collections.abc import Iterator, Mapping, Sequence

from lowtide.frameworks.tensorflow.graphs.messages import encode_field, field_number, map_entry, named_fields, values
from lowtide.frameworks.wire import BYTES, Content, WireError, fields

_NAMES = {field_number("NodeDef", name): name for name in ("name", "op", "input", "device", "attr")}
_BY_TAG = {number << 3 | BYTES: name for number, name in _NAMES.items()}


class NodeDef:
    """An immutable node. `piece` is its message, uncopied, since it may contain a large constant."""

    __slots__ = ("_attributes", "device", "inputs", "name", "op", "piece")

    def __init__(self, piece: Content) -> None:
        """Raises WireError for broken content."""
        found = {"name": "", "op": "", "device": ""}
        inputs: list[str] = []
        try:
            for field, begin, end in _texts(piece):
                text = str(piece[begin:end], "utf-8")
                if field == "input":
                    inputs.append(text)
                else:
                    found[field] = text
        except UnicodeDecodeError:
            raise WireError(0, "the texts of a node are not UTF-8") from None
        self.piece = piece
        self.name = found["name"]
        self.op = found["op"]
        self.inputs: Sequence[str] = inputs
        self.device = found["device"]
        self._attributes: dict[str, Content] | None = None

    @classmethod
    def make(
        cls,
        name: str,
        op: str,
        inputs: Sequence[str] = (),
        attributes: Mapping[str, bytes] | None = None,
        device: str = "",
    ) -> "NodeDef":
        """Make a node with attributes encoded by `graphs.attributes`."""
        pieces = _front(name, op, inputs)
        if device:
            pieces.append(encode_field("NodeDef", "device", device))
        pieces += [_attribute(key, value) for key, value in sorted((attributes or {}).items())]
        return cls(b"".join(pieces))

    def attribute(self, name: str) -> Content | None:
        """Return the message of an attribute, or None."""
        if self._attributes is None:
            self._attributes = dict(map_entry("AttrEntry", entry) for entry in values("NodeDef", self.piece, "attr"))
        return self._attributes.get(name)

    def renamed(self, name: str, inputs: Sequence[str]) -> "NodeDef":
        """Return the node with another name and other inputs."""
        rest = (
            self.piece[start:end]
            for field, start, _, end in named_fields("NodeDef", self.piece)
            if field not in ("name", "op", "input")
        )
        return NodeDef(b"".join((*_front(name, self.op, inputs), *rest)))

    def with_inputs(self, inputs: Sequence[str]) -> "NodeDef":
        """Return the node with other inputs."""
        return self.renamed(self.name, inputs)

    def with_controls(self, names: Sequence[str]) -> "NodeDef":
        """Return the node with more control inputs."""
        more = b"".join(encode_field("NodeDef", "input", f"^{name}") for name in names)
        return NodeDef(b"".join((self.piece, more))) if more else self

    def with_attributes(self, attributes: Mapping[str, bytes]) -> "NodeDef":
        """Return the node with attributes added or replaced."""
        kept = (
            self.piece[start:end]
            for field, start, begin, end in named_fields("NodeDef", self.piece)
            if field != "attr" or map_entry("AttrEntry", self.piece[begin:end])[0] not in attributes
        )
        return NodeDef(b"".join((*kept, *(_attribute(key, value) for key, value in sorted(attributes.items())))))


def _texts(piece: Content) -> Iterator[tuple[str, int, int]]:
    """Yield names and positions of text fields, decoding short ones here for speed."""
    at, stop = 0, len(piece)
    while at < stop:
        field = _BY_TAG.get(piece[at])
        begin = at + 2
        if field is not None and begin <= stop and piece[at + 1] < 128 and begin + piece[at + 1] <= stop:
            at = begin + piece[at + 1]
        else:
            number, wire, _, begin, at = next(fields(piece, at, stop))
            field = _NAMES.get(number)
            if wire != BYTES and field not in (None, "attr"):
                raise WireError(begin, f"field {field} of a node is not a text")
        if field not in (None, "attr"):
            yield field, begin, at


def _front(name: str, op: str, inputs: Sequence[str]) -> list[bytes]:
    inputs_of_node = (encode_field("NodeDef", "input", each) for each in inputs)
    return [encode_field("NodeDef", "name", name), encode_field("NodeDef", "op", op), *inputs_of_node]


def _attribute(name: str, value: bytes) -> bytes:
    entry = encode_field("AttrEntry", "key", name) + encode_field("AttrEntry", "value", value)
    return encode_field("NodeDef", "attr", entry)
