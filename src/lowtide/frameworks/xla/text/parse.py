"""From HLO text to a module.

jaxlib has a parser of HLO text, too. This is another one as that one refuses opcodes that it does not know, needs
jaxlib, and prints what it has read in its own words, so that nothing would come back as it was.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.text.instruction import START, Instruction, parse_instruction
from lowtide.frameworks.xla.text.module import Computation, HloModule

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK_OR_COMMENT = re.compile(r"\s*(?://[^\n]*|/\*.*\*/\s*)?\s*$")
_OPENING = re.compile(r"\s*(ENTRY\s+)?%?([A-Za-z_][\w.\-~]*)\s*(?:\(.*\)\s*->.*)?\{\s*(?://[^\n]*)?$", re.DOTALL)
_LONGEST_OPENING = 64
"""Lines over which the parameters of a computation may be spread."""
_CLOSING = re.compile(r"\s*\}\s*(?:[,/].*)?$", re.DOTALL)


def parse_module(text: str, where: str = "the HLO text") -> HloModule:
    """Parse HLO text into a module whose text is the same, byte for byte.

    `where` is what messages call it. Raises MalformedInputError for text that is no module: without a header or an
    entry, cut off, with instructions that are none, or with one name twice. O(length).
    """
    header: list[str] = []
    pending: list[str] = []
    computations: list[Computation] = []
    lines = iter(_LINE.findall(text))
    for line in lines:
        pending.append(line)
        opening = _opening_of(pending) if line.rstrip().endswith("{") or "{ //" in line else None
        if opening is None:
            continue
        if not computations:
            kept = len(pending) - len(_LINE.findall(opening.string))
            header, pending = pending[:kept], pending[kept:]
        computations.append(_computation("".join(pending), opening, lines, where))
        pending = []
    if not computations:
        header, pending = pending, []
    module = HloModule("".join(header), tuple(computations), "".join(pending))
    return _checked(module, where)


def _opening_of(pending: list[str]) -> re.Match[str] | None:
    """Return how a computation begins in the last line or, written in several, in the last few."""
    tail = ""
    for line in reversed(pending[-_LONGEST_OPENING:]):
        tail = line + tail
        found = _OPENING.match(tail)
        if found is not None or not line.strip():
            return found
    return None


def _computation(opening: str, found: re.Match[str], lines: Iterator[str], where: str) -> Computation:
    """Read the instructions of a computation up to the line that closes it."""
    name = found[2]
    instructions: list[Instruction] = []
    before: list[str] = []
    current: list[str] = []

    def finish() -> None:
        if current:
            try:
                instructions.append(parse_instruction("".join(current)))
            except MalformedInputError as error:
                raise MalformedInputError(f"{where}: computation {name!r}: {error}") from None
            current.clear()

    for line in lines:
        if START.match(line):
            finish()
            current.extend(before)
            before.clear()
            current.append(line)
        elif _CLOSING.match(line):
            finish()
            return Computation(name, found[1] is not None, opening, tuple(instructions), "".join(before) + line)
        elif current and not _BLANK_OR_COMMENT.match(line):
            current.extend(before)
            before.clear()
            current.append(line)
        elif _BLANK_OR_COMMENT.match(line):
            before.append(line)
        else:
            raise MalformedInputError(f"{where}: computation {name!r}: {line.strip()[:80]!r} is no instruction")
    raise MalformedInputError(f"{where}: computation {name!r} is not closed; the text is cut off")


def _checked(module: HloModule, where: str) -> HloModule:
    if re.search(r"^\s*HloModule\b", module.header, re.MULTILINE) is None:
        raise MalformedInputError(f"{where}: no line begins with HloModule, so this is no HLO text")
    if not module.computations:
        raise MalformedInputError(f"{where}: the module has no computation; the text is cut off")
    if len(module.by_name) != len(module.computations):
        raise MalformedInputError(f"{where}: two computations have one name")
    entries = [computation for computation in module.computations if computation.is_entry]
    if len(entries) > 1:
        raise MalformedInputError(f"{where}: {len(entries)} computations are marked ENTRY; mark one")
    if not entries:
        if len(module.computations) > 1:
            raise MalformedInputError(f"{where}: no computation is marked ENTRY; mark the one to run")
        module = replace(module, computations=tuple(replace(only, is_entry=True) for only in module.computations))
    for computation in module.computations:
        _check_names(module, computation, f"{where}: computation {computation.name!r}")
    return module


def _check_names(module: HloModule, computation: Computation, where: str) -> None:
    """Check that every name stands for something, and that operands come before their users."""
    if not computation.instructions:
        raise MalformedInputError(f"{where} has no instructions")
    if len(computation.positions) != len(computation.instructions):
        raise MalformedInputError(f"{where}: two instructions have one name")
    if sum(instruction.is_root for instruction in computation.instructions) > 1:
        raise MalformedInputError(f"{where}: two instructions are marked ROOT")
    for place, instruction in enumerate(computation.instructions):
        for name in (*instruction.operands, *instruction.control_predecessors):
            position = computation.positions.get(name)
            if position is None or position >= place:
                problem = "is no instruction here" if position is None else "does not come before it"
                raise MalformedInputError(f"{where}: instruction {instruction.name!r} uses {name!r}, which {problem}")
        for names in instruction.callees.values():
            for name in names:
                if name not in module.by_name:
                    raise MalformedInputError(
                        f"{where}: instruction {instruction.name!r} calls {name!r}, which is no computation here"
                    )
        try:
            _ = instruction.shape
        except MalformedInputError as error:
            raise MalformedInputError(f"{where}: instruction {instruction.name!r}: {error}") from None
