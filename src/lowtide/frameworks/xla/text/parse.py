"""Parse HLO text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.text.brackets import end_of_group, split_top, without_comments
from lowtide.frameworks.xla.text.module import NO_OPERANDS, Computation, HloModule, Instruction
from lowtide.frameworks.xla.text.shape import end_of_shape

_ELEMENT = re.compile(r"(%?)([\w.\-~]+)((?:#\d{1,9})+)")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK_OR_COMMENT = re.compile(r"\s*(?://[^\n]*|/\*.*\*/\s*)?\s*$")
_OPENING = re.compile(r"\s*(ENTRY\s+)?%?([A-Za-z_][\w.\-~]*)\s*(?:\(.*\)\s*->.*)?\{\s*(?://[^\n]*)?$", re.DOTALL)
_MAX_OPENING_LINES = 64
_CLOSING = re.compile(r"\s*\}\s*(?:[,/].*)?$", re.DOTALL)
_START = re.compile(r"\s*(ROOT\s+)?%?([A-Za-z_][\w.\-~]*)\s*=\s*(?=\(|[A-Za-z]\w*\[|b\()")
_OPCODE = re.compile(r"\s*([A-Za-z][\w\-]*)\s*\(")


def parse_module(text: str, where: str = "the HLO text") -> HloModule:
    """Parse HLO text into a module with the same text, byte for byte. O(length).

    Elements of tuples read as `%tuple#1` become get-tuple-element instructions. `where` names the text in messages.
    Raises MalformedInputError.
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
    tail = ""
    for line in reversed(pending[-_MAX_OPENING_LINES:]):
        tail = line + tail
        found = _OPENING.match(tail)
        if found is not None or not line.strip():
            return found
    return None


def _computation(opening: str, found: re.Match[str], lines: Iterator[str], where: str) -> Computation:
    name = found[2]
    instructions: list[Instruction] = []
    before: list[str] = []
    current: list[str] = []

    known: dict[str, Instruction] = {}

    def finish() -> None:
        if current:
            try:
                for instruction in _with_elements(_instruction("".join(current)), known):
                    known[instruction.name] = instruction
                    instructions.append(instruction)
            except MalformedInputError as error:
                raise MalformedInputError(f"{where}: computation {name!r}: {error}") from None
            current.clear()

    for line in lines:
        if _START.match(line):
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


def _instruction(text: str) -> Instruction:
    begin = _START.match(text) or next((found for found in map(_START.match, _tails(text)) if found), None)
    if begin is None:
        raise MalformedInputError(f"{text.strip()[:80]!r} is no instruction; write name = shape opcode(operands)")
    body, offset = begin.string, len(text) - len(begin.string)
    shape_end = end_of_shape(body, begin.end())
    opcode = _OPCODE.match(body, shape_end)
    if opcode is None:
        raise MalformedInputError(f"instruction {begin[2]!r} has no opcode and operands after its shape")
    end = _end_of_operands(body, opcode.end() - 1)
    return Instruction(
        name=begin[2],
        is_root=begin[1] is not None,
        shape_text=body[begin.end() : shape_end],
        opcode=opcode[1],
        operand_text=body[opcode.end() : end - 1].strip(),
        attribute_text=body[end:],
        text=text,
        operands_end=offset + end - 1,
    )


def _with_elements(instruction: Instruction, known: Mapping[str, Instruction]) -> list[Instruction]:
    """Return an instruction after new ones for the elements of tuples that it reads as `%tuple#1`.

    XLA prints them this way since the release in JAX 0.12.
    """
    if "#" not in instruction.operand_text or instruction.opcode in NO_OPERANDS:
        return [instruction]
    added: dict[str, Instruction] = {}

    def named(element: re.Match[str]) -> str:
        percent, source, places = element.groups()
        for place in map(int, places[1:].split("#")):
            maker, name = added.get(source) or known.get(source), f"get-tuple-element.{source}.{place}"
            shape = "" if maker is None else without_comments(maker.shape_text).strip()
            parts = list(split_top(shape[1:-1])) if shape.startswith("(") else []
            if place >= len(parts):
                raise MalformedInputError(
                    f"instruction {instruction.name!r} reads element {place} of {source!r}, which has none"
                )
            if name not in known and name not in added:
                call = f"get-tuple-element({percent}{source}), index={place}"
                added[name] = _instruction(f"  {percent}{name} = {parts[place].strip()} {call}\n")
            source = name
        return f"{percent}{source}"

    end = instruction.operands_end
    start = instruction.text.rindex(instruction.operand_text, 0, end)
    operands = _ELEMENT.sub(named, instruction.operand_text)
    return [*added.values(), _instruction(instruction.text[:start] + operands + instruction.text[end:])]


def _tails(text: str) -> list[str]:
    return [text[found.end() :] for found in re.finditer("\n", text)]


def _end_of_operands(text: str, opening: int) -> int:
    closing = text.find(")", opening)
    is_plain = closing >= 0 and not any(text.find(letter, opening + 1, closing) >= 0 for letter in '("')
    return closing + 1 if is_plain else end_of_group(text, opening)


def _checked(module: HloModule, where: str) -> HloModule:
    if re.search(r"^\s*HloModule\b", module.header, re.MULTILINE) is None:
        raise MalformedInputError(f"{where} is no HLO text: no line begins with HloModule")
    if not module.computations:
        raise MalformedInputError(f"{where}: the module has no computation; the text is cut off")
    if len(module.by_name) != len(module.computations):
        raise MalformedInputError(f"{where}: two computations have the same name")
    entries = [computation for computation in module.computations if computation.is_entry]
    if len(entries) > 1:
        raise MalformedInputError(f"{where}: {len(entries)} computations are marked ENTRY; mark one")
    if not entries:
        if len(module.computations) > 1:
            raise MalformedInputError(f"{where}: no computation is marked ENTRY; mark one")
        module = replace(module, computations=tuple(replace(only, is_entry=True) for only in module.computations))
    for computation in module.computations:
        _check_names(module, computation, f"{where}: computation {computation.name!r}")
    return module


def _check_names(module: HloModule, computation: Computation, where: str) -> None:
    if not computation.instructions:
        raise MalformedInputError(f"{where} has no instructions")
    if len(computation.positions) != len(computation.instructions):
        raise MalformedInputError(f"{where}: two instructions have the same name")
    if sum(instruction.is_root for instruction in computation.instructions) > 1:
        raise MalformedInputError(f"{where}: two instructions are marked ROOT")
    for place, instruction in enumerate(computation.instructions):
        for name in (*instruction.operands, *instruction.control_predecessors):
            position = computation.positions.get(name)
            if position is None or position >= place:
                problem = "is not defined" if position is None else "comes later"
                raise MalformedInputError(f"{where}: instruction {instruction.name!r} uses {name!r}, which {problem}")
        for names in instruction.callees.values():
            for name in names:
                if name not in module.by_name:
                    raise MalformedInputError(
                        f"{where}: instruction {instruction.name!r} calls undefined computation {name!r}"
                    )
        try:
            _ = instruction.shape
        except MalformedInputError as error:
            raise MalformedInputError(f"{where}: instruction {instruction.name!r}: {error}") from None
