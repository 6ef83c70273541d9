"""Load an HLO module."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError, named_type
from lowtide.core.files import read_bytes
from lowtide.frameworks.buffer_assignment import Allocation, AssignedBuffer, Place, instruction_numbers, read_assignment
from lowtide.frameworks.content import is_hlo_proto, is_hlo_text, is_mlir
from lowtide.frameworks.protobuf.text import decoded_text
from lowtide.frameworks.wire import begun_fields
from lowtide.frameworks.xla.jaxlib import text_of_content, text_of_module
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.parse import parse_module

_HLO_MODULE, _BUFFER_ASSIGNMENT = 1, 3
_ALLOCATION = re.compile(r"allocation (\d{1,18}): size (\d{1,18})((?:, .*)?):")
_BEGINNINGS = ("allocation", " value")
_COLOR = re.compile(r", color (\d{1,9})")
_VALUE = re.compile(
    r" value: <\d{1,18} ([^{ ]+)(?:\{([\d,]*)\})?(?: \(phi\))? @\d+> \(size=(\d{1,18}),offset=(\d{1,18})\)"
)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    module: HloModule
    where: str
    allocations: tuple[Allocation, ...] = ()


def load_module(source: Any) -> Loaded:
    """Load a module from a path, an `HloModule`, or an object of jaxlib.

    Files hold HLO text, HloProto, HloModuleProto, or StableHLO. Objects are jaxlib's HloModule, XlaComputation and
    loaded executables, and lowered or compiled functions of JAX. Raises MalformedInputError for other content,
    UnsupportedError for an executable with several modules, UsageError for another object, InputError for an unreadable
    file, MissingExtraError without jaxlib.
    """
    if isinstance(source, HloModule):
        return Loaded(module=source, where=f"module {source.name!r}")
    if isinstance(source, str | Path):
        return _with_dumped_assignment(read_content(read_bytes(Path(source)), str(source)), Path(source))
    if hasattr(source, "compiler_ir"):  # jax.stages.Lowered
        return read_content(source.as_text().encode(), "a lowered function")
    if hasattr(source, "runtime_executable"):  # jax.stages.Compiled
        source = source.runtime_executable()
    if hasattr(source, "hlo_modules"):
        return _executable(source)
    if hasattr(source, "get_hlo_module"):  # an XlaComputation
        source = source.get_hlo_module()
    if hasattr(source, "to_string") and hasattr(source, "as_serialized_hlo_module_proto"):
        where = f"module {source.name!r}"
        return Loaded(module=parse_module(text_of_module(source), where), where=where)
    raise UsageError(f"cannot read {named_type(source)} as an HLO module; give a path, or an HloModule")


def read_content(content: bytes, where: str) -> Loaded:
    if is_hlo_text(content):
        return Loaded(module=parse_module(decoded_text(content, where), where), where=where)
    if is_mlir(content):
        return Loaded(module=parse_module(text_of_content("mlir", content, where), where), where=where)
    if is_hlo_proto(content):
        found = {number: value for number, _, value in begun_fields(content) if isinstance(value, bytes)}
        inner, assignment = found.get(_HLO_MODULE, b""), found.get(_BUFFER_ASSIGNMENT)
        if not is_hlo_proto(inner):  # a bare HloModuleProto
            inner, assignment = content, None
        module = parse_module(text_of_content("proto", inner, where), where)
        return Loaded(module=module, where=where, allocations=_allocations(assignment, inner, where))
    raise MalformedInputError(f"{where} is neither HLO text nor an HloProto nor StableHLO; is it cut off?")


def _with_dumped_assignment(loaded: Loaded, path: Path) -> Loaded:
    dumped = path.with_name(f"{path.stem}-buffer-assignment.txt")
    if loaded.allocations or not dumped.is_file():
        return loaded
    text = decoded_text(read_bytes(dumped), str(dumped))
    return replace(loaded, allocations=_read_assignment_text(text, loaded.module, str(dumped)))


def _executable(source: Any) -> Loaded:
    modules = source.hlo_modules()
    if len(modules) != 1:
        raise UnsupportedError(f"the executable has {len(modules)} modules; give one of its hlo_modules()")
    where = f"the executable of module {modules[0].name!r}"
    stats = source.get_compiled_memory_stats() if hasattr(source, "get_compiled_memory_stats") else None
    assignment = getattr(stats, "serialized_buffer_assignment_proto", None)
    allocations = _allocations(assignment, modules[0].as_serialized_hlo_module_proto(), where)
    return Loaded(module=parse_module(text_of_module(modules[0]), where), where=where, allocations=allocations)


def _allocations(assignment: bytes | None, module: bytes, where: str) -> tuple[Allocation, ...]:
    return read_assignment(assignment, instruction_numbers(module, where), where) if assignment else ()


def _read_assignment_text(text: str, module: HloModule, where: str) -> tuple[Allocation, ...]:
    """Parse the allocations of a `*-buffer-assignment.txt`; raises MalformedInputError."""
    computation_of = {
        instruction.name: computation.name
        for computation in module.computations
        for instruction in computation.instructions
    }
    allocations: list[Allocation] = []
    head: re.Match[str] | None = None
    buffers: list[AssignedBuffer] = []
    for number, line in enumerate(text.splitlines(), 1):
        begun, value = _ALLOCATION.fullmatch(line), _VALUE.match(line)
        if value is not None and head is not None:
            buffers.append(_dumped_buffer(value, computation_of))
        elif begun is not None or head is not None:
            if head is not None:
                allocations.append(_dumped_allocation(head, buffers))
            head, buffers = begun, []
            if begun is None:
                if line.startswith(_BEGINNINGS):
                    raise MalformedInputError(f"{where}: line {number} is malformed; is it cut off?")
                break  # the rest repeats the allocations
    if head is not None:
        allocations.append(_dumped_allocation(head, buffers))
    if not allocations:
        raise MalformedInputError(f"{where}: the buffer assignment has no allocations; is it cut off?")
    return tuple(allocations)


def _dumped_buffer(value: re.Match[str], computation_of: Mapping[str, str]) -> AssignedBuffer:
    name, index, size, offset = value.groups()
    computation = computation_of.get(name)
    path = tuple(int(each) for each in (index or "").split(",") if each)
    place: Place | None = None if computation is None else (computation, name, path)
    return AssignedBuffer(place=place, size_bytes=int(size), offset=int(offset))


def _dumped_allocation(head: re.Match[str], buffers: list[AssignedBuffer]) -> Allocation:
    number, size, rest = head.groups()
    color = _COLOR.match(rest)
    return Allocation(
        number=int(number),
        size_bytes=int(size),
        is_thread_local=", thread-local" in rest,
        is_parameter=", parameter " in rest,
        is_constant=", constant" in rest,
        is_result=", maybe-live-out" in rest,
        color=0 if color is None else int(color[1]),
        buffers=tuple(buffers),
    )
