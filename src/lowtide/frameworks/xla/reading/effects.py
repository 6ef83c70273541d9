"""What an instruction does beside computing its result."""

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.frameworks.xla.opcodes import EFFECTS, ends, is_known, starts
from lowtide.frameworks.xla.text.instruction import Instruction


@dataclass(frozen=True, slots=True)
class Effects:
    """Whether an op may run twice, and whether it keeps its place among its like."""

    pure: bool
    ordered: bool


def effects_of(instruction: Instruction, callees: Mapping[str, Effects]) -> Effects:
    """Return the effects of an instruction; `callees` holds those of the computations that it runs."""
    opcode = instruction.opcode
    if not is_known(opcode) or opcode in EFFECTS:
        return Effects(pure=False, ordered=True)
    if opcode == "custom-call" and instruction.attribute("custom_call_has_side_effect") == "true":
        return Effects(pure=False, ordered=True)
    if starts(opcode) or ends(opcode):
        return Effects(pure=False, ordered=any(inner.ordered for inner in callees.values()))
    return together(callees)


def together(parts: Mapping[str, Effects]) -> Effects:
    """Return the effects of what does all of several things."""
    return Effects(
        pure=all(inner.pure for inner in parts.values()), ordered=any(inner.ordered for inner in parts.values())
    )
