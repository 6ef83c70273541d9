"""`callers_of`: computations with graphs of their own, and their callers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide.core.errors import GraphError, MalformedInputError
from lowtide.engine.graph.check import callee_order
from lowtide.frameworks.xla.opcodes import CONTROL_FLOW, is_known, starts
from lowtide.frameworks.xla.text.module import HloModule, Instruction


@dataclass(slots=True)
class Callers:
    """The ways a computation is called."""

    as_body: bool = False
    as_condition: bool = False
    as_branch: bool = False
    as_call: bool = False
    asynchronously: bool = False
    changed_parts: set[int] = field(default_factory=set[int])
    """Parts of the state that the calling loop changes."""

    @property
    def only_called(self) -> bool:
        """Whether only call instructions call it."""
        return self.as_call and not (self.as_body or self.as_condition or self.as_branch or self.asynchronously)

    @property
    def in_loop(self) -> bool:
        """Whether only loops call it."""
        return (self.as_body or self.as_condition) and not (self.as_branch or self.as_call or self.asynchronously)


def scheduled_callees(instruction: Instruction) -> tuple[str, ...]:
    """Return the computations that an instruction runs outside of a kernel, without duplicates."""
    if instruction.callees and (instruction.opcode in CONTROL_FLOW or _runs_computation(instruction)):
        return tuple(dict.fromkeys(name for names in instruction.callees.values() for name in names))
    return ()


def callers_of(module: HloModule, where: str) -> dict[str, Callers]:
    """Return the computations that run outside of kernels: callees first, the entry last.

    Raises MalformedInputError for recursive calls.
    """
    calls: dict[str, tuple[str, ...]] = {}
    waiting = [module.entry.name]
    while waiting:
        name = waiting.pop()
        if name not in calls:
            found = [scheduled_callees(instruction) for instruction in module.by_name[name].instructions]
            calls[name] = tuple(dict.fromkeys(callee for callees in found for callee in callees))
            waiting += calls[name]
    try:
        order = callee_order({name: list(callees) for name, callees in calls.items()})
    except GraphError:
        raise MalformedInputError(f"{where}: recursive calls between computations") from None
    callers = {name: Callers() for name in order}
    for name in order:
        for instruction in module.by_name[name].instructions:
            _note_calls(instruction, callers)
    return callers


def _note_calls(instruction: Instruction, callers: Mapping[str, Callers]) -> None:
    for attribute, names in instruction.callees.items() if scheduled_callees(instruction) else ():
        for name in names:
            if instruction.opcode == "while" and attribute == "body":
                callers[name].as_body = True
            elif instruction.opcode == "while":
                callers[name].as_condition = True
            elif instruction.opcode == "conditional":
                callers[name].as_branch = True
            elif starts(instruction.opcode):
                callers[name].asynchronously = True
            else:
                callers[name].as_call = True


def _runs_computation(instruction: Instruction) -> bool:
    if not is_known(instruction.opcode):
        return True
    return starts(instruction.opcode) and not instruction.opcode.startswith(("all-reduce", "reduce-scatter"))
