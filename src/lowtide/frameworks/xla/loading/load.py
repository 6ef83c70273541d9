"""From a path or an object to an HLO module, told by content."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError
from lowtide.core.files import read_bytes
from lowtide.frameworks.buffer_assignment import Allocation, instruction_numbers, read_assignment
from lowtide.frameworks.content import is_hlo_proto, is_hlo_text, is_mlir
from lowtide.frameworks.wire import begun_fields
from lowtide.frameworks.xla.loading.apart import text_of_content
from lowtide.frameworks.xla.loading.assignment_text import read_assignment_text
from lowtide.frameworks.xla.loading.jaxlib import text_of_module
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.parse import parse_module

_HLO_MODULE, _BUFFER_ASSIGNMENT = 1, 3
"""Fields of an HloProto."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A module, and what came with it."""

    module: HloModule
    where: str
    """What messages call it."""
    allocations: tuple[Allocation, ...] = ()
    """What XLA reserved for the module; empty where nobody said."""


def load_module(source: Any) -> Loaded:
    """Return the module of a source: a path, a module, or an object of jaxlib.

    Files are HLO text, an HloProto or HloModuleProto, or StableHLO as text or bytecode; all but the first need jaxlib.
    Objects are jaxlib's HloModule, XlaComputation and loaded executables, and what `jax.jit` lowered or compiled.
    Raises MalformedInputError for what is none of these inside, UnsupportedError for an executable of several modules,
    UsageError for another object, InputError for a file that cannot be read, MissingExtraError where jaxlib is needed
    and not there.
    """
    if isinstance(source, HloModule):
        return Loaded(module=source, where=f"module {source.name!r}")
    if isinstance(source, str | Path):
        return _with_assignment_beside(read_content(read_bytes(Path(source)), str(source)), Path(source))
    if hasattr(source, "compiler_ir"):  # what jax.stages has before it is compiled
        return read_content(source.as_text().encode(), "a lowered function")
    if hasattr(source, "runtime_executable"):  # what jax.stages wraps around one
        source = source.runtime_executable()
    if hasattr(source, "hlo_modules"):
        return _executable(source)
    if hasattr(source, "get_hlo_module"):  # an XlaComputation
        source = source.get_hlo_module()
    if hasattr(source, "to_string") and hasattr(source, "as_serialized_hlo_module_proto"):
        where = f"module {source.name!r}"
        return Loaded(module=parse_module(text_of_module(source), where), where=where)
    raise UsageError(f"cannot read a {type(source).__name__} as an HLO module; give a path, or an HloModule")


def read_content(content: bytes, where: str) -> Loaded:
    """Return the module in a file's content."""
    if is_hlo_text(content):
        return Loaded(module=parse_module(_decoded(content, where), where), where=where)
    if is_mlir(content):
        return Loaded(module=parse_module(text_of_content("mlir", content, where), where), where=where)
    if is_hlo_proto(content):
        found = {number: value for number, _, value in begun_fields(content) if isinstance(value, bytes)}
        inner, assignment = found.get(_HLO_MODULE, b""), found.get(_BUFFER_ASSIGNMENT)
        if not is_hlo_proto(inner):  # a bare HloModuleProto
            inner, assignment = content, None
        module = parse_module(text_of_content("proto", inner, where), where)
        return Loaded(module=module, where=where, allocations=_allocations(assignment, inner, where))
    raise MalformedInputError(f"{where}: this is neither HLO text nor an HloProto nor StableHLO; is it cut off?")


def _with_assignment_beside(loaded: Loaded, path: Path) -> Loaded:
    """Return a module with what XLA reserved for it, where XLA dumped that as text beside it."""
    beside = path.with_name(f"{path.stem}-buffer-assignment.txt")
    if loaded.allocations or not beside.is_file():
        return loaded
    text = _decoded(read_bytes(beside), str(beside))
    return replace(loaded, allocations=read_assignment_text(text, loaded.module, str(beside)))


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
    return read_assignment(assignment, instruction_numbers(module), where) if assignment else ()


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedInputError(f"{where}: the text is not UTF-8 at byte {error.start}") from None
