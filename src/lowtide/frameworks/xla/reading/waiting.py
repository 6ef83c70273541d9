"""What an op waits for that it reads nothing of: control edges, and operands behind views and calls."""

from collections.abc import Collection, Iterable

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.xla.opcodes import FREE, VIEWS
from lowtide.frameworks.xla.text.instruction import Instruction
from lowtide.frameworks.xla.text.module import Computation

_NONE: frozenset[int] = frozenset()


def is_op(instruction: Instruction) -> bool:
    """Whether an instruction runs: parameters and constants are there, and views only name what is."""
    return instruction.opcode not in FREE and not (instruction.opcode in VIEWS and instruction.operands)


class Waiting:
    """Follows a computation's instructions in their order."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._ops: dict[int, OpId] = {}
        self._producers: list[frozenset[int]] = []
        """Per instruction, the ops whose results it is made of: itself, or those of its operands where it is no op."""
        self._controls: list[frozenset[int]] = []
        """Per instruction that is no op, the ops that it waits for without being made of their results."""

    def add(self, place: int, op: OpId | None, definers: Collection[int]) -> list[OpId]:
        """Take the next instruction and return the ops that it waits for beyond those that define what it reads.

        `op` is None for what is no op; `definers` are the places of those that define what it reads. A dependence on
        what is read needs no edge, so that ops get few.
        """
        instruction, positions = self._computation.instructions[place], self._computation.positions
        operands = [positions[name] for name in instruction.operands]
        before = [positions[name] for name in instruction.control_predecessors]
        producers = _union(self._producers[operand] for operand in operands)
        controls = _union(self._controls[operand] for operand in operands)
        controls |= _union(self._producers[other] | self._controls[other] for other in before)
        if op is None:
            self._producers.append(producers)
            self._controls.append(controls)
            return []
        self._ops[place] = op
        self._producers.append(frozenset((place,)))
        self._controls.append(_NONE)
        return sorted(self._ops[other] for other in controls | (producers.difference(definers)))


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return _NONE.union(*sets)
