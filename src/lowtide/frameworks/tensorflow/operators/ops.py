"""Arguments and effects of TensorFlow's ops, from the table of scripts/write_tensorflow_ops.py."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lowtide.frameworks.tensorflow.graphs.attributes import integer, integers
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef

RESOURCE, VARIANT = 20, 21
_TABLE = Path(__file__).parent / "ops.tsv"


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """One or more inputs or outputs of an op."""

    name: str
    count: str
    """The attribute with their number; "" for one, "*" for one per item of `kind`."""
    kind: str
    """A data type, or the attribute with it."""
    is_reference: bool

    def types(self, node: NodeDef, defaults: dict[str, int]) -> list[int]:
        """Return the data types of the values of this argument."""
        if self.count == "*":
            return integers(node.attribute(self.kind))
        one = int(self.kind) if self.kind.isdigit() else _number(node, self.kind, defaults)
        return [one] * (_number(node, self.count, defaults) if self.count else 1)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Arguments and effects of an op."""

    is_stateful: bool
    inputs: tuple[ArgumentSpec, ...]
    outputs: tuple[ArgumentSpec, ...]
    defaults: dict[str, int]

    def output_types(self, node: NodeDef) -> list[int]:
        """Return the data type of every output of a node."""
        return [kind for argument in self.outputs for kind in argument.types(node, self.defaults)]

    def output_place(self, node: NodeDef, name: str) -> int | None:
        """Return the index of the first value of a named output, or None."""
        place = 0
        for argument in self.outputs:
            if argument.name == name:
                return place
            place += len(argument.types(node, self.defaults))
        return None

    def input_types(self, node: NodeDef) -> list[tuple[int, bool]]:
        """Return the data type of every input, and whether it is a reference."""
        return [
            (kind, argument.is_reference) for argument in self.inputs for kind in argument.types(node, self.defaults)
        ]


@cache
def spec_of(op: str) -> OpSpec | None:
    """Return the spec of an op, or None if TensorFlow does not have it."""
    line = _lines().get(op)
    if line is None:
        return None
    stateful, inputs, outputs, defaults = (*line, "", "", "", "")[:4]
    return OpSpec(
        stateful == "s",
        tuple(_argument("", each) for each in inputs.split()),
        tuple(_argument(*each.split(":")) for each in outputs.split()),
        {name: int(value) for name, _, value in (each.partition("=") for each in defaults.split())},
    )


@cache
def _lines() -> dict[str, list[str]]:
    rows = (line.split("\t") for line in _TABLE.read_text(encoding="utf-8").splitlines())
    return {name: columns for name, *columns in rows}


def _argument(name: str, kind: str) -> ArgumentSpec:
    is_reference = kind.startswith("&")
    count, star, kind = kind.removeprefix("&").rpartition("*")
    return ArgumentSpec(name, count or star, kind, is_reference)


def _number(node: NodeDef, attribute: str, defaults: dict[str, int]) -> int:
    return integer(node.attribute(attribute), defaults.get(attribute, 0))
