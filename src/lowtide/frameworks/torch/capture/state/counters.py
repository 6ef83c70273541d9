"""Counters: names that code only increments, so that their values decide nothing."""

import dis
import functools
import types

from lowtide.frameworks.torch.capture.state.names import mentioned_as_text, with_inner

_ADD_IN_PLACE = "+="
_ADD_INSTRUCTION = next(
    bytes((each.opcode, each.arg or 0))
    for each in dis.get_instructions(compile("x += 1", "", "exec"))
    if each.argrepr == _ADD_IN_PLACE
)
_MOVES = {"SWAP", "ROT_TWO", "COPY"}


@functools.lru_cache(maxsize=16)
def counter_names(codes: tuple[types.CodeType, ...]) -> frozenset[str]:
    """Return the attributes, globals and outer variables that all code only increments by integers."""
    parts = [part for code in codes for part in with_inner(code)]
    found = {name for part in parts for name in _incremented(part)}
    return frozenset(name for name in found if all(_only_increments(part, name) for part in parts))


def _incremented(code: types.CodeType) -> set[str]:
    if _ADD_INSTRUCTION not in code.co_code or not any(isinstance(each, int) for each in code.co_consts):
        return set()
    return {name for name, uses in _uses_by_name(code).items() if all(uses)}


def _only_increments(code: types.CodeType, name: str) -> bool:
    if name in mentioned_as_text(code):
        return False
    if name not in (*code.co_names, *code.co_freevars, *code.co_cellvars):
        return True
    return all(_uses_by_name(code).get(name, [True]))


def _uses_by_name(code: types.CodeType) -> dict[str, list[bool]]:
    instructions = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "COPY_FREE_VARS")]
    uses: dict[str, list[bool]] = {}
    part_of_increment: set[int] = set()
    for place, load in enumerate(instructions):
        kind, _, target = load.opname.partition("_")
        if kind not in ("LOAD", "STORE", "DELETE") or target not in ("ATTR", "GLOBAL", "DEREF", "METHOD", "NAME"):
            continue
        if kind == "LOAD":
            rest = [each for each in instructions[place + 1 : place + 6] if each.opname not in _MOVES][:3]
            if _is_increment(load, rest):
                part_of_increment |= {load.offset, rest[2].offset}
        uses.setdefault(load.argval, []).append(load.offset in part_of_increment)
    return uses


def _is_increment(load: dis.Instruction, rest: list[dis.Instruction]) -> bool:
    if len(rest) < 3:
        return False
    constant, add, store = rest
    return (
        type(constant.argval) is int
        and constant.opname.startswith("LOAD_")
        and constant.opname not in ("LOAD_FAST", "LOAD_ATTR")
        and add.opname == "BINARY_OP"
        and add.argrepr == _ADD_IN_PLACE
        and store.opname == load.opname.replace("LOAD", "STORE")
        and store.argval == load.argval
    )
