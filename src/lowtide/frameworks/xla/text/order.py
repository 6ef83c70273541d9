"""The order of instructions in HLO text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowtide.core.errors import VerificationError
from lowtide.frameworks.xla.text.module import Computation, HloModule, Instruction

_NAME = re.compile(r"(HloModule\s+[^\s,]+)")
_SCHEDULED = re.compile(r",\s*is_scheduled=(?:true|false)")
_CONTROL = re.compile(r",\s*control-predecessors=(?:\{[^}]*\}|%?[\w.\-~]+)")


def reordered(module: HloModule, orders: Mapping[str, Sequence[int]]) -> HloModule:
    """Return a module with computations in other orders, given as positions."""
    return replace(
        module,
        computations=tuple(
            _in_order(computation, orders[computation.name]) if computation.name in orders else computation
            for computation in module.computations
        ),
    )


def marked_scheduled(module: HloModule, scheduled: bool = True) -> HloModule:
    if module.is_scheduled == scheduled:
        return module
    return replace(module, header=_marked_header(module.header, scheduled))


def with_control_edges(module: HloModule, edges: Mapping[str, Mapping[str, Sequence[str]]]) -> HloModule:
    """Return a module with more control predecessors, by computation and instruction."""
    return replace(
        module,
        computations=tuple(
            replace(
                computation,
                instructions=tuple(
                    _with_predecessors(instruction, edges.get(computation.name, {}).get(instruction.name, ()))
                    for instruction in computation.instructions
                ),
            )
            for computation in module.computations
        ),
    )


def verify_schedule(module: HloModule, original: HloModule | None = None) -> None:
    """Verify that a module is scheduled, with operands before users and all control edges respected. O(n + e).

    With `original`, also verify that opcodes, operands, control predecessors and shapes are the same. Raises
    VerificationError.
    """
    if not module.is_scheduled:
        raise VerificationError(f"module {module.name!r} is not scheduled: is_scheduled=true is missing")
    for computation in module.computations:
        _check_order(computation)
    if original is None:
        return
    if list(module.by_name) != list(original.by_name):
        raise VerificationError(f"module {module.name!r} has other computations than the original")
    for name, computation in module.by_name.items():
        _check_same(computation, original.by_name[name])


def _in_order(computation: Computation, order: Sequence[int]) -> Computation:
    if list(order) == list(range(len(computation.instructions))):
        return computation
    root = computation.instructions[computation.root]
    moved = [computation.instructions[place] for place in order]
    if not root.is_root:
        moved = [_marked_root(instruction) if instruction is root else instruction for instruction in moved]
    return replace(computation, instructions=tuple(moved))


def _marked_root(instruction: Instruction) -> Instruction:
    name = re.compile(rf"^(\s*)(%?{re.escape(instruction.name)}\s*=)", re.MULTILINE)
    text = name.sub(r"\1ROOT \2", instruction.text, count=1)
    return replace(instruction, is_root=True, text=text, operands_end=instruction.operands_end + len("ROOT "))


def _marked_header(header: str, scheduled: bool) -> str:
    start = re.search(r"^\s*HloModule", header, re.MULTILINE)
    at = start.start() if start else 0  # comments may come before
    before, line = header[:at], header[at:]
    line = _SCHEDULED.sub("", line, count=1)
    return before + (_NAME.sub(r"\1, is_scheduled=true", line, count=1) if scheduled else line)


def _with_predecessors(instruction: Instruction, names: Sequence[str]) -> Instruction:
    added = [name for name in names if name not in instruction.control_predecessors]
    if not added:
        return instruction
    percent = "%" if "%" in instruction.text[: instruction.operands_end] else ""
    listed = ", ".join(percent + name for name in (*instruction.control_predecessors, *added))
    edge = f", control-predecessors={{{listed}}}"
    attributes = edge + _CONTROL.sub("", instruction.attribute_text, count=1)
    before = instruction.text[: instruction.operands_end + 1]
    return replace(instruction, attribute_text=attributes, text=before + attributes)


def _check_order(computation: Computation) -> None:
    for place, instruction in enumerate(computation.instructions):
        for kind, names in (("operand", instruction.operands), ("control", instruction.control_predecessors)):
            for name in names:
                if computation.positions.get(name, place) >= place:
                    raise VerificationError(
                        f"computation {computation.name!r}: instruction {instruction.name!r} comes before its {kind} "
                        f"predecessor {name!r}"
                    )


def _check_same(computation: Computation, original: Computation) -> None:
    for name in original.positions.keys() ^ computation.positions.keys():
        raise VerificationError(f"computation {computation.name!r}: instruction {name!r} is in only one of the modules")
    for name, place in computation.positions.items():
        now, before = computation.instructions[place], original.instructions[original.positions[name]]
        if now is not before and _essentials(now) != _essentials(before):
            raise VerificationError(f"computation {computation.name!r}: instruction {name!r} differs from the original")
    if computation.instructions[computation.root].name != original.instructions[original.root].name:
        raise VerificationError(f"computation {computation.name!r} has another root than the original")


def _essentials(instruction: Instruction) -> tuple[object, ...]:
    predecessors = set(instruction.control_predecessors)
    return instruction.opcode, instruction.shape_text, instruction.operands, predecessors
