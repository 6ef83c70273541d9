"""Operands and parameters that may be overwritten."""

import re
from functools import cache

from lowtide.frameworks.xla.opcodes import ELEMENTWISE, FIRST_OPERAND
from lowtide.frameworks.xla.text.module import Computation, HloModule, Instruction
from lowtide.frameworks.xla.text.shape import HloShape, memory_space, own_bytes

_ALIAS = re.compile(r"\{([\d, ]*)\}\s*:\s*\(\s*(\d{1,9})\s*,\s*\{([\d, ]*)\}")
_DONOR = re.compile(r"\(\s*(\d{1,9})\s*,\s*\{([\d, ]*)\}\s*\)")

Index = tuple[int, ...]


def input_output_aliases(module: HloModule) -> list[tuple[Index, int, Index]]:
    """Return aliases: (index in the result, parameter number, index in the parameter)."""
    return _aliases(module.attributes.get("input_output_alias", ""))


def donated_parameters(module: HloModule) -> list[tuple[int, Index]]:
    """Return parameters donated without an alias: (number, index)."""
    found = _DONOR.findall(module.attributes.get("buffer_donor", ""))
    return [(int(number), _index(index)) for number, index in found]


def output_operand_aliases(instruction: Instruction) -> list[tuple[Index, int, Index]]:
    """Return aliases of a fusion or custom call: (index in the result, operand, index in the operand)."""
    text = instruction.attribute("output_to_operand_aliasing")
    return _aliases(text) if text else []


class Overwriting:
    """Decides which operands results may overwrite.

    Source: XLA, HloDataflowAnalysis::CanShareOperandBufferWithUser. A copy in place gains nothing, and a dot reads
    elements after it has written some.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._fused_pairs = cache(self._find_fused_pairs)

    def may_overwrite(self, instruction: Instruction, operand: int, source: HloShape, part: int) -> bool:
        """Return whether a part of the result may overwrite an operand of shape `source`."""
        result = instruction.shape.parts[part]
        if not _has_same_layout(source, result) or result.is_tuple:
            return False
        opcode = instruction.opcode
        if opcode in ELEMENTWISE:
            return True
        if opcode in FIRST_OPERAND:
            return operand == 0
        if opcode == "sort":
            return part == (operand + 1 if instruction.shape.is_tuple else operand)
        if opcode == "fusion" and instruction.attribute("kind") != "kCustom":
            names = instruction.callees.get("calls", ())
            return any((operand, part) in self._fused_pairs(name) for name in names)
        return False

    def _find_fused_pairs(self, name: str) -> frozenset[tuple[int, int]]:
        computation = self._module.by_name[name]
        reached: list[int] = []
        broken = 0
        for place, instruction in enumerate(computation.instructions):
            operands = [computation.positions[name] for name in instruction.operands]
            bits = 0
            for operand in operands:
                bits |= reached[operand]
            if instruction.opcode == "parameter":
                number = instruction.operand_text
                bits = 1 << int(number) if number.isdecimal() and len(number) < 5 else 0
            elif not _keeps_places(computation, place, operands):
                kept = reached[operands[0]] if _updates_result(computation, place, operands) else 0
                for operand in operands[1:] if kept else ():
                    broken |= reached[operand]
                broken |= 0 if kept else bits
                bits = kept
            reached.append(bits)
        root = computation.instructions[computation.root]
        if root.opcode == "tuple":
            ends = [(1 + place, reached[computation.positions[name]]) for place, name in enumerate(root.operands)]
        else:
            ends = [(0, reached[computation.root])]
        return frozenset((number, part) for part, bits in ends for number in _numbers(bits & ~broken))


def _has_same_layout(one: HloShape, other: HloShape) -> bool:
    return one is other or (
        one.dims == other.dims
        and own_bytes(one) == own_bytes(other)
        and memory_space(one) == memory_space(other)
        and (not one.layout or not other.layout or _minor(one) == _minor(other))
    )


def _aliases(text: str) -> list[tuple[Index, int, Index]]:
    return [(_index(output), int(number), _index(inner)) for output, number, inner in _ALIAS.findall(text)]


def _index(text: str) -> Index:
    return tuple(int(step[:9]) for step in text.replace(" ", "").split(",") if step)


def _minor(shape: HloShape) -> str:
    return shape.layout.partition(":")[0]


def _keeps_places(computation: Computation, place: int, operands: list[int]) -> bool:
    instruction = computation.instructions[place]
    if instruction.opcode in ELEMENTWISE:
        return True
    if instruction.opcode == "bitcast":
        return computation.instructions[operands[0]].shape.dims == instruction.shape.dims
    return instruction.opcode == "tuple" and place == computation.root


def _updates_result(computation: Computation, place: int, operands: list[int]) -> bool:
    instruction = computation.instructions[place]
    if instruction.opcode not in ("dynamic-update-slice", "scatter") or not operands:
        return False
    source = computation.instructions[operands[0]]
    root = computation.instructions[computation.root]
    is_result = place == computation.root or (root.opcode == "tuple" and instruction.name in root.operands)
    users = [user for user in computation.instructions for name in user.operands if name == source.name]
    return is_result and source.opcode == "parameter" and len(users) == 1


def _numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]
