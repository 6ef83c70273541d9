"""One instruction of HLO text: what it is, and every byte of how it was written."""

import re
from dataclasses import dataclass
from functools import cached_property

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.text.scan import end_of_group, split_top, without_comments
from lowtide.frameworks.xla.text.shape import HloShape, end_of_shape, parse_shape

START = re.compile(r"\s*(ROOT\s+)?%?([A-Za-z_][\w.\-~]*)\s*=\s*(?=\(|[A-Za-z]\w*\[|b\()")
"""How the line of an instruction begins, up to its shape."""
NO_OPERANDS = frozenset({"parameter", "constant", "iota", "partition-id", "replica-id"})
"""Opcodes between whose parentheses no instructions stand."""
_OPCODE = re.compile(r"\s*([A-Za-z][\w\-]*)\s*\(")
_PERCENT = re.compile(r"%([\w.\-~]+)")
_KEY = re.compile(r"\s*([A-Za-z_][\w\-]*)=")
_CALLEES = (
    "calls",
    "to_apply",
    "body",
    "condition",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
    "select",
    "scatter",
)
"""Attributes that name computations."""
_MAY_CALL = re.compile(rf"[, ](?:{'|'.join(_CALLEES)})=")


@dataclass(frozen=True)
class Instruction:
    """An instruction; `text` is all of it, with the lines before it that belong to no other."""

    name: str
    is_root: bool
    shape_text: str
    opcode: str
    operand_text: str
    """What stands between the parentheses."""
    attribute_text: str
    """What stands behind the parentheses."""
    text: str
    operands_end: int
    """Where in `text` the closing parenthesis of the operands is."""

    @property
    def shape(self) -> HloShape:
        """What it computes; raises MalformedInputError for what is no shape."""
        return parse_shape(self.shape_text)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of its operands, in order."""
        if self.opcode in NO_OPERANDS or not self.operand_text:
            return ()
        if "%" in self.operand_text:
            return tuple(_PERCENT.findall(without_comments(self.operand_text)))
        parts = [part.split() for part in split_top(self.operand_text)]
        return tuple(part[-1] for part in parts if part)

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Its attributes, each as it is written; of two of one name the last counts."""
        found: dict[str, str] = {}
        for part in split_top(self.attribute_text):
            key = _KEY.match(part)
            if key is not None:
                found[key[1]] = part[key.end() :].strip()
        return found

    @cached_property
    def callees(self) -> dict[str, tuple[str, ...]]:
        """The computations it names, by the attribute that does."""
        if _MAY_CALL.search(self.attribute_text) is None:
            return {}
        named = {key: self.attributes[key] for key in _CALLEES if key in self.attributes}
        return {key: tuple(names_in(value)) for key, value in named.items()}

    @cached_property
    def control_predecessors(self) -> tuple[str, ...]:
        """The instructions that it waits for without reading them."""
        if "control-predecessors" not in self.attribute_text:
            return ()
        return tuple(names_in(self.attributes.get("control-predecessors", "")))

    def attribute(self, name: str) -> str | None:
        """Return an attribute as it is written, None where it has none; cheap where it has not."""
        return self.attributes.get(name) if f"{name}=" in self.attribute_text else None


def names_in(value: str) -> list[str]:
    """Return the names in `%a` or `{%a, %b}`, with or without the percent signs."""
    return [part.strip().removeprefix("%") for part in value.strip().strip("{}").split(",") if part.strip()]


def parse_instruction(text: str) -> Instruction:
    """Parse one instruction with the lines before it; raises MalformedInputError that names what is wrong."""
    begin = START.match(text) or next((found for found in map(START.match, _tails(text)) if found), None)
    if begin is None:
        raise MalformedInputError(f"{text.strip()[:80]!r} is no instruction; one reads: name = shape opcode(operands)")
    body, offset = begin.string, len(text) - len(begin.string)
    shape_end = end_of_shape(body, begin.end())
    opcode = _OPCODE.match(body, shape_end)
    if opcode is None:
        raise MalformedInputError(f"instruction {begin[2]!r} has no opcode with operands behind its shape")
    end = _end_of_operands(body, opcode.end() - 1)
    return Instruction(
        name=begin[2],
        is_root=begin[1] is not None,
        shape_text=body[begin.end() : shape_end],
        opcode=opcode[1],
        operand_text=body[opcode.end() : end - 1].strip(),
        attribute_text=body[end:],
        text=text,
        operands_end=offset + end - 1,
    )


def _tails(text: str) -> list[str]:
    """Return what begins at each line: comments and blank lines may stand before an instruction."""
    return [text[found.end() :] for found in re.finditer("\n", text)]


def _end_of_operands(text: str, opening: int) -> int:
    """Return the place behind the parenthesis that closes the one at `opening`."""
    closing = text.find(")", opening)
    plain = closing >= 0 and not any(text.find(letter, opening + 1, closing) >= 0 for letter in '("')
    return closing + 1 if plain else end_of_group(text, opening)
