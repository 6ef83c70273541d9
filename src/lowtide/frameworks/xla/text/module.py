"""Modules that keep every byte."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lowtide.frameworks.xla.text.brackets import split_top, without_comments
from lowtide.frameworks.xla.text.shape import HloShape, parse_shape

_HEADER = re.compile(r"HloModule\s+([^\s,]+)((?:[^\n]|\n(?!\s*\n))*)")
NO_OPERANDS = frozenset({"parameter", "constant", "iota", "partition-id", "replica-id"})
_PERCENT = re.compile(r"%([\w.\-~]+)")
_KEY = re.compile(r"\s*([A-Za-z_][\w\-]*)=")
_CALLEE = (
    "calls|to_apply|body|condition|true_computation|false_computation|branch_computations|called_computations|select|"
    "scatter"
)
_CALLEES = _CALLEE.split("|")
_MAY_CALL = re.compile(rf"[, ](?:{_CALLEE})=")


@dataclass(frozen=True)
class Instruction:
    name: str
    is_root: bool
    shape_text: str
    opcode: str
    operand_text: str
    attribute_text: str
    text: str
    operands_end: int

    @property
    def shape(self) -> HloShape:
        return parse_shape(self.shape_text)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        if self.opcode in NO_OPERANDS or not self.operand_text:
            return ()
        if "%" in self.operand_text:
            return tuple(_PERCENT.findall(without_comments(self.operand_text)))
        parts = [part.split() for part in split_top(self.operand_text)]
        return tuple(part[-1] for part in parts if part)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """By name, as text; of two with one name the last counts."""
        found: dict[str, str] = {}
        for part in split_top(self.attribute_text):
            key = _KEY.match(part)
            if key is not None:
                found[key[1]] = part[key.end() :].strip()
        return found

    @cached_property
    def callees(self) -> dict[str, tuple[str, ...]]:
        if _MAY_CALL.search(self.attribute_text) is None:
            return {}
        named = {key: self.attributes[key] for key in _CALLEES if key in self.attributes}
        return {key: tuple(_names_in(value)) for key, value in named.items()}

    @cached_property
    def control_predecessors(self) -> tuple[str, ...]:
        if "control-predecessors" not in self.attribute_text:
            return ()
        return tuple(_names_in(self.attributes.get("control-predecessors", "")))

    def attribute(self, name: str) -> str | None:
        return self.attributes.get(name) if f"{name}=" in self.attribute_text else None


@dataclass(frozen=True)
class Computation:
    """A computation with its instructions in text order, each before its users."""

    name: str
    is_entry: bool
    opening: str
    """The text before its instructions."""
    instructions: tuple[Instruction, ...]
    closing: str
    """The text after its instructions, with the closing brace."""

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each instruction, by name."""
        return {instruction.name: place for place, instruction in enumerate(self.instructions)}

    @cached_property
    def root(self) -> int:
        """The position of the one marked ROOT, or else the last."""
        return next(
            (place for place, instruction in enumerate(self.instructions) if instruction.is_root),
            len(self.instructions) - 1,
        )

    @property
    def text(self) -> str:
        """The computation as text."""
        return self.opening + "".join(instruction.text for instruction in self.instructions) + self.closing


@dataclass(frozen=True)
class HloModule:
    """A module of HLO text, compared by its text."""

    header: str
    """The text before the first computation."""
    computations: tuple[Computation, ...]
    rest: str
    """The text after the last computation."""

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """The module as HLO text. Unmodified, it is equal byte for byte."""
        return self.header + "".join(computation.text for computation in self.computations) + self.rest

    @property
    def name(self) -> str:
        """The module's name."""
        found = _HEADER.search(self.header)
        return found[1] if found else ""

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """The header's attributes, as text."""
        found = _HEADER.search(self.header)
        pairs = [part.strip().partition("=") for part in split_top(found[2] if found else "")]
        return {key: value for key, sign, value in pairs if sign}

    @property
    def is_scheduled(self) -> bool:
        """Whether it is marked as scheduled."""
        return self.attributes.get("is_scheduled") == "true"

    @cached_property
    def by_name(self) -> Mapping[str, Computation]:
        """The computations by name."""
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def entry(self) -> Computation:
        """The entry computation."""
        return next(computation for computation in self.computations if computation.is_entry)


def _names_in(value: str) -> list[str]:
    return [part.strip().removeprefix("%") for part in value.strip().strip("{}").split(",") if part.strip()]
