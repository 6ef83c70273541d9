"""Which results may lie where an operand lay: elementwise instructions, and fusions of them."""

from functools import cache

from lowtide.frameworks.xla.opcodes import ELEMENTWISE, FIRST_OPERAND
from lowtide.frameworks.xla.sizes import memory_space, own_bytes
from lowtide.frameworks.xla.text.instruction import Instruction
from lowtide.frameworks.xla.text.module import Computation, HloModule
from lowtide.frameworks.xla.text.shape import HloShape


class Overwriting:
    """Answers for one module; what it finds out of a fused computation it keeps.

    Source: XLA, HloDataflowAnalysis::CanShareOperandBufferWithUser. A copy may not, nor may a dot: nothing would be
    gained by the one, and the other reads elements after it has written some.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._fused = cache(self._look_into)

    def may(self, instruction: Instruction, operand: int, source: HloShape, part: int) -> bool:
        """Tell whether a part of the result may take over the storage of an operand, an array of the shape `source`."""
        result = instruction.shape.parts[part]
        if not same_storage(source, result) or result.is_tuple:
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
            return any((operand, part) in self._fused(name) for name in names)
        return False

    def _look_into(self, name: str) -> frozenset[tuple[int, int]]:
        """Return (parameter, part of the result) where each element is made of the parameter's at the same place."""
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


def same_storage(one: HloShape, other: HloShape) -> bool:
    """Whether arrays of two shapes have their elements at the same bytes of the same memory space."""
    return one is other or (
        one.dims == other.dims
        and own_bytes(one) == own_bytes(other)
        and memory_space(one) == memory_space(other)
        and (not one.layout or not other.layout or _minor(one) == _minor(other))
    )


def _minor(shape: HloShape) -> str:
    return shape.layout.partition(":")[0]


def _keeps_places(computation: Computation, place: int, operands: list[int]) -> bool:
    """Whether an instruction makes each element of the elements at the same place."""
    instruction = computation.instructions[place]
    if instruction.opcode in ELEMENTWISE:
        return True
    if instruction.opcode == "bitcast":
        return computation.instructions[operands[0]].shape.dims == instruction.shape.dims
    return instruction.opcode == "tuple" and place == computation.root


def _updates_result(computation: Computation, place: int, operands: list[int]) -> bool:
    """Whether an instruction changes a slice of a parameter that nothing else reads, and is a result."""
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
