"""One node of a graph: its name, op and inputs, with everything else as it was read."""

from collections.abc import Iterator, Mapping, Sequence

from lowtide.frameworks.wire import BYTES, Content, WireError, encode_bytes, fields

_NAME, _OP, _INPUT, _DEVICE, _ATTR = 1, 2, 3, 4, 5
_SHORT = {number << 3 | BYTES: number for number in (_NAME, _OP, _INPUT, _DEVICE, _ATTR)}
"""Fields of bytes by the one byte that announces them."""


class NodeDef:
    """A node: `piece` is its message, which holds contents of constants and is never copied while it is read.

    Nodes never change; `with_inputs`, `with_controls` and `with_attributes` make others.
    """

    __slots__ = ("_attributes", "device", "inputs", "name", "op", "piece")

    def __init__(self, piece: Content) -> None:
        """Read a node; raises WireError for what is none."""
        name = op = device = ""
        inputs: list[str] = []
        try:
            for number, begin, end in _texts(piece):
                value = str(piece[begin:end], "utf-8")
                if number == _INPUT:
                    inputs.append(value)
                elif number == _NAME:
                    name = value
                elif number == _OP:
                    op = value
                else:
                    device = value
        except UnicodeDecodeError:
            raise WireError(0, "the texts of a node are no UTF-8") from None
        self.piece = piece
        self.name = name
        self.op = op
        self.inputs: Sequence[str] = inputs
        self.device = device
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
        """Make a node; attributes by name are messages, as `graphs.attributes` writes them."""
        pieces = [encode_bytes(_NAME, name.encode()), encode_bytes(_OP, op.encode())]
        pieces += [encode_bytes(_INPUT, each.encode()) for each in inputs]
        if device:
            pieces.append(encode_bytes(_DEVICE, device.encode()))
        pieces += [_attribute(key, value) for key, value in sorted((attributes or {}).items())]
        return cls(b"".join(pieces))

    def attribute(self, name: str) -> Content | None:
        """Return the message of an attribute, None where the node does not have it."""
        if self._attributes is None:
            self._attributes = dict(
                _entry(self.piece, begin, end)
                for number, wire, _, begin, end in fields(self.piece, 0, len(self.piece))
                if number == _ATTR and wire == BYTES
            )
        return self._attributes.get(name)

    def renamed(self, name: str, inputs: Sequence[str]) -> "NodeDef":
        """Return the node under another name with other inputs, and all else as it is."""
        front = [encode_bytes(_NAME, name.encode()), encode_bytes(_OP, self.op.encode())]
        front += [encode_bytes(_INPUT, each.encode()) for each in inputs]
        return NodeDef(b"".join((*front, *self._without(_NAME, _OP, _INPUT))))

    def with_inputs(self, inputs: Sequence[str]) -> "NodeDef":
        """Return the node with other inputs."""
        return self.renamed(self.name, inputs)

    def with_controls(self, names: Sequence[str]) -> "NodeDef":
        """Return the node waiting for others as well; what it has comes first, unchanged."""
        more = b"".join(encode_bytes(_INPUT, f"^{name}".encode()) for name in names)
        return NodeDef(b"".join((self.piece, more))) if more else self

    def with_attributes(self, attributes: Mapping[str, bytes]) -> "NodeDef":
        """Return the node with more attributes, or others."""
        kept: list[Content] = []
        for number, wire, start, begin, end in fields(self.piece, 0, len(self.piece)):
            if number != _ATTR or wire != BYTES or _entry(self.piece, begin, end)[0] not in attributes:
                kept.append(self.piece[start:end])
        return NodeDef(b"".join((*kept, *(_attribute(key, value) for key, value in sorted(attributes.items())))))

    def _without(self, *numbers: int) -> list[Content]:
        return [
            self.piece[start:end]
            for number, _, start, _, end in fields(self.piece, 0, len(self.piece))
            if number not in numbers
        ]


def _texts(piece: Content) -> Iterator[tuple[int, int, int]]:
    """Yield number and place of the texts of a node: what is short, as nearly all of it, without a call a field."""
    at, stop = 0, len(piece)
    while at < stop:
        number = _SHORT.get(piece[at])
        begin = at + 2
        if number is not None and begin <= stop and piece[at + 1] < 128 and begin + piece[at + 1] <= stop:
            at = begin + piece[at + 1]
        else:
            number, wire, _, begin, at = next(fields(piece, at, stop))
            if wire != BYTES and number <= _DEVICE:
                raise WireError(begin, f"field {number} of a node is no text")
        if number <= _DEVICE:
            yield number, begin, at


def _entry(piece: Content, begin: int, end: int) -> tuple[str, Content]:
    name, value = "", piece[begin:begin]
    for number, wire, _, at, stop in fields(piece, begin, end):
        if wire == BYTES and number == 1:
            name = str(piece[at:stop], "utf-8", "replace")
        elif wire == BYTES and number == 2:
            value = piece[at:stop]
    return name, value


def _attribute(name: str, value: bytes) -> bytes:
    return encode_bytes(_ATTR, encode_bytes(1, name.encode()) + encode_bytes(2, value))
