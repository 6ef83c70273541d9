"""Effects of ops, and dependences other than reads."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.xla.opcodes import EFFECTS, FREE, VIEWS, ends, is_known, starts
from lowtide.frameworks.xla.text.module import Computation, Instruction

_NONE: frozenset[int] = frozenset()


def is_op(instruction: Instruction) -> bool:
    return instruction.opcode not in FREE and not (instruction.opcode in VIEWS and instruction.operands)


@dataclass(frozen=True, slots=True)
class Effects:
    pure: bool
    ordered: bool


def effects_of(instruction: Instruction, callees: Mapping[str, Effects]) -> Effects:
    opcode = instruction.opcode
    if not is_known(opcode) or opcode in EFFECTS:
        return Effects(pure=False, ordered=True)
    if opcode == "custom-call" and instruction.attribute("custom_call_has_side_effect") == "true":
        return Effects(pure=False, ordered=True)
    if starts(opcode) or ends(opcode):
        return Effects(pure=False, ordered=any(inner.ordered for inner in callees.values()))
    return combined(callees)


def combined(parts: Mapping[str, Effects]) -> Effects:
    return Effects(
        pure=all(inner.pure for inner in parts.values()), ordered=any(inner.ordered for inner in parts.values())
    )


class OtherDependences:
    """Control edges, and operands behind views and calls, collected in text order."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._ops: dict[int, OpId] = {}
        self._producers: list[frozenset[int]] = []
        self._controls: list[frozenset[int]] = []
        """Per view, the ops that only it waits for."""

    def add(self, place: int, op: OpId | None, definers: Collection[int]) -> list[OpId]:
        """Return the ops that the next instruction waits for, besides the `definers` of its reads."""
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
