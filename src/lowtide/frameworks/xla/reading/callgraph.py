"""Computations that need graphs."""

from dataclasses import dataclass, field
from typing import Literal

from lowtide.core.errors import GraphError, MalformedInputError
from lowtide.engine.graph.check import callee_order
from lowtide.frameworks.xla.opcodes import CONTROL_FLOW, is_known, starts
from lowtide.frameworks.xla.text.module import HloModule, Instruction

Way = Literal["body", "condition", "branch", "call", "asynchronous"]


@dataclass(slots=True)
class Callers:
    ways: set[Way] = field(default_factory=set[Way])
    changed_parts: set[int] = field(default_factory=set[int])

    @property
    def only_called(self) -> bool:
        return self.ways == {"call"}

    @property
    def in_loop(self) -> bool:
        return bool(self.ways) and self.ways <= {"body", "condition"}


def scheduled_callees(instruction: Instruction) -> tuple[str, ...]:
    if instruction.callees and (instruction.opcode in CONTROL_FLOW or _runs_computation(instruction)):
        return tuple(dict.fromkeys(name for names in instruction.callees.values() for name in names))
    return ()


def callers_of(module: HloModule, where: str) -> dict[str, Callers]:
    """Return the computations run outside of kernels, callees first; raises MalformedInputError for recursion."""
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
            for attribute, names in instruction.callees.items() if scheduled_callees(instruction) else ():
                for callee in names:
                    callers[callee].ways.add(_way(instruction.opcode, attribute))
    return callers


def _way(opcode: str, attribute: str) -> Way:
    if opcode == "while":
        return "body" if attribute == "body" else "condition"
    if opcode == "conditional":
        return "branch"
    return "asynchronous" if starts(opcode) else "call"


def _runs_computation(instruction: Instruction) -> bool:
    if not is_known(instruction.opcode):
        return True
    return starts(instruction.opcode) and not instruction.opcode.startswith(("all-reduce", "reduce-scatter"))
