"""What HLO text says of storage that results take over: from parameters of a module, from operands of an op."""

import re

from lowtide.frameworks.xla.text.instruction import Instruction
from lowtide.frameworks.xla.text.module import HloModule

_ALIAS = re.compile(r"\{([\d, ]*)\}\s*:\s*\(\s*(\d{1,9})\s*,\s*\{([\d, ]*)\}")
_DONOR = re.compile(r"\(\s*(\d{1,9})\s*,\s*\{([\d, ]*)\}\s*\)")

Index = tuple[int, ...]
"""Where in a tuple of tuples something stands."""


def input_output_aliases(module: HloModule) -> list[tuple[Index, int, Index]]:
    """Return what a module says of its results: (index in the result, number of a parameter, index in that)."""
    return _aliases(module.attributes.get("input_output_alias", ""))


def donated_parameters(module: HloModule) -> list[tuple[int, Index]]:
    """Return the parameters that the caller gives away without saying what for: (number, index in it)."""
    found = _DONOR.findall(module.attributes.get("buffer_donor", ""))
    return [(int(number), _index(index)) for number, index in found]


def output_operand_aliases(instruction: Instruction) -> list[tuple[Index, int, Index]]:
    """Return what a fusion or custom call says of its results: (index in the result, operand, index in that)."""
    text = instruction.attribute("output_to_operand_aliasing")
    return _aliases(text) if text else []


def _aliases(text: str) -> list[tuple[Index, int, Index]]:
    return [(_index(output), int(number), _index(inner)) for output, number, inner in _ALIAS.findall(text)]


def _index(text: str) -> Index:
    return tuple(int(step[:9]) for step in text.replace(" ", "").split(",") if step)
