"""`callers_of`: computations that need graphs."""

from dataclasses import dataclass, field
from typing import Literal

from lowtide.core.errors import GraphError, MalformedInputError
from lowtide.engine.graph.check import callee_order
from lowtide.frameworks.xla.opcodes import CONTROL_FLOW, is_known, starts
from lowtide.frameworks.xla.text.module import HloModule, Instruction

Way = Literal["body", "condition", "branch", "call", "asynchronous"]
"""A caller: a loop, a branch, or another instruction."""


@dataclass(slots=True)
class Callers:
    """The ways a computation is called."""

    ways: set[Way] = field(default_factory=set[Way])
    changed_parts: set[int] = field(default_factory=set[int])
    """Parts of the state changed by the calling loop."""

    @property
    def only_called(self) -> bool:
        """Whether it has only call instructions."""
        return self.ways == {"call"}

    @property
    def in_loop(self) -> bool:
        """Whether it has only loops."""
        return bool(self.ways) and self.ways <= {"body", "condition"}


def scheduled_callees(instruction: Instruction) -> tuple[str, ...]:
    """Return the computations run outside of a kernel, without duplicates."""
    if instruction.callees and (instruction.opcode in CONTROL_FLOW or _runs_computation(instruction)):
        return tuple(dict.fromkeys(name for names in instruction.callees.values() for name in names))
    return ()


def callers_of(module: HloModule, where: str) -> dict[str, Callers]:
    """Return the computations run outside of kernels: callees first, the entry last; raises MalformedInputError for
    recursion."""
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
