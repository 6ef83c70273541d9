"""Modules with their instructions in another order, marked as scheduled or held by control edges."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowtide.frameworks.xla.text.instruction import Instruction
from lowtide.frameworks.xla.text.module import Computation, HloModule

_NAME = re.compile(r"(HloModule\s+[^\s,]+)")
_SCHEDULED = re.compile(r",\s*is_scheduled=(?:true|false)")
_CONTROL = re.compile(r",\s*control-predecessors=(?:\{[^}]*\}|%?[\w.\-~]+)")


def reordered(module: HloModule, orders: Mapping[str, Sequence[int]]) -> HloModule:
    """Return a module with the instructions of some computations in other orders, given as their present places."""
    return replace(
        module,
        computations=tuple(
            _in_order(computation, orders[computation.name]) if computation.name in orders else computation
            for computation in module.computations
        ),
    )


def marked_scheduled(module: HloModule, scheduled: bool = True) -> HloModule:
    """Return a module that says that it is scheduled, or that does not."""
    if module.is_scheduled == scheduled:
        return module
    header = _outside_comments(module.header, scheduled)
    return replace(module, header=header)


def with_control_edges(module: HloModule, edges: Mapping[str, Mapping[str, Sequence[str]]]) -> HloModule:
    """Return a module whose instructions wait for others beside those they wait for already.

    `edges` holds, by computation and instruction, the names of those to wait for.
    """
    return replace(
        module,
        computations=tuple(
            replace(
                computation,
                instructions=tuple(
                    _waiting(instruction, edges.get(computation.name, {}).get(instruction.name, ()))
                    for instruction in computation.instructions
                ),
            )
            for computation in module.computations
        ),
    )


def _in_order(computation: Computation, order: Sequence[int]) -> Computation:
    if list(order) == list(range(len(computation.instructions))):
        return computation
    moved = [computation.instructions[place] for place in order]
    if not computation.instructions[computation.root].is_root:  # the root is the last one unless one says that it is
        root = computation.instructions[computation.root]
        moved = [_marked_root(instruction) if instruction is root else instruction for instruction in moved]
    return replace(computation, instructions=tuple(moved))


def _marked_root(instruction: Instruction) -> Instruction:
    name = re.compile(rf"^(\s*)(%?{re.escape(instruction.name)}\s*=)", re.MULTILINE)
    text = name.sub(r"\1ROOT \2", instruction.text, count=1)
    return replace(instruction, is_root=True, text=text, operands_end=instruction.operands_end + len("ROOT "))


def _outside_comments(header: str, scheduled: bool) -> str:
    start = re.search(r"^\s*HloModule", header, re.MULTILINE)
    at = start.start() if start else 0
    before, line = header[:at], header[at:]
    line = _SCHEDULED.sub("", line, count=1)
    return before + (_NAME.sub(r"\1, is_scheduled=true", line, count=1) if scheduled else line)


def _waiting(instruction: Instruction, names: Sequence[str]) -> Instruction:
    added = [name for name in names if name not in instruction.control_predecessors]
    if not added:
        return instruction
    percent = "%" if "%" in instruction.text[: instruction.operands_end] else ""
    listed = ", ".join(percent + name for name in (*instruction.control_predecessors, *added))
    edge = f", control-predecessors={{{listed}}}"
    behind = instruction.operands_end + 1
    attributes = edge + _CONTROL.sub("", instruction.attribute_text, count=1)
    return replace(instruction, attribute_text=attributes, text=instruction.text[:behind] + attributes)
