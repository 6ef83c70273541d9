"""Read a module into a graph."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.engine.graph import Graph
from lowtide.frameworks.xla.opcodes import is_known
from lowtide.frameworks.xla.points_to.buffers import PointsTo, part_at, points_to
from lowtide.frameworks.xla.points_to.overwriting import Overwriting, donated_parameters, input_output_aliases
from lowtide.frameworks.xla.points_to.storage import StorageMap, handed_over, storage_of, storage_of_callee
from lowtide.frameworks.xla.reading.callgraph import Callers, callers_of, scheduled_callees
from lowtide.frameworks.xla.reading.computation import ComputationReader, ParameterLives, ReadComputation
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.shape import POINTER_BYTES, is_known_dtype, memory_space


@dataclass(frozen=True, kw_only=True)
class ReadModule:
    """A module with its computations' graphs."""

    module: HloModule
    computations: Mapping[str, ReadComputation]
    """Callees first, the entry last."""

    @property
    def graph(self) -> Graph:
        """The entry's graph. Subgraphs are named after computations."""
        return self.computations[self.module.entry.name].graph


def read_module(module: HloModule, where: str = "the module", *, pointer_bytes: int = POINTER_BYTES) -> ReadModule:
    """Read a module into a graph. O(n + parts log parts).

    `pointer_bytes` is the size of a tuple per element. Raises MalformedInputError for inconsistent
    instructions, GraphError for an invalid program.
    """
    callers = callers_of(module, where)
    overwriting = Overwriting(module)
    points: dict[str, PointsTo] = {}
    storage: dict[str, StorageMap] = {}
    state: dict[str, list[tuple[int, int]]] = {}
    entry = module.entry.name
    donated: list[int] = []
    for name in callers:
        found = points[name] = points_to(module.by_name[name], points)
        state[name] = _state(found, callers[name])
        if name == entry:
            state[name], donated = _aliased(module, found), _donated(module, found)
            given = {old for old, _ in state[name]}.union(donated)
            storage[name] = storage_of(found, overwriting, state=state[name], given=given)
        elif callers[name].only_called:
            storage[name] = storage_of_callee(found, overwriting)
            found.returned_in = storage[name].returned_in(found)
        else:
            storage[name] = storage_of(found, overwriting, state=state[name])
    _note_changed_parts(module, points, callers)
    spaces = sorted({0, *(memory_space(buffer.shape) for found in points.values() for buffer in found.buffers)})
    read: dict[str, ReadComputation] = {}
    for name in callers:
        is_entry = name == entry
        handed = handed_over(points[name], storage[name], state[name])
        lives = ParameterLives(donated=frozenset({*handed, *(donated if is_entry else ())}), handed_over=handed)
        reader = ComputationReader(
            points[name], storage[name], overwriting, read, None if is_entry else callers[name], pointer_bytes
        )
        notes = _notes(module, callers) if is_entry else ()
        read[name] = reader.read(module.name if is_entry else name, spaces, lives, notes)
    return ReadModule(module=module, computations=read)


def _state(points: PointsTo, callers: Callers) -> list[tuple[int, int]]:
    """Return a loop's changed state: (parameter's buffer, result's buffer)."""
    before = points.parameter_parts().get(0, [])
    if not ("body" in callers.ways and callers.in_loop) or len(before) != len(points.result):
        return []
    return [(old, new) for old, new in zip(before, points.result, strict=True) if old != new]


def _aliased(module: HloModule, points: PointsTo) -> list[tuple[int, int]]:
    """Return an entry's aliases: (parameter's buffer, result's buffer)."""
    found: list[tuple[int, int]] = []
    root = points.computation.instructions[points.computation.root]
    for output, number, inner in input_output_aliases(module):
        old, new = _parameter_part(points, number, inner), part_at(root.shape, output)
        if old is not None and new is not None and old != points.result[new]:
            found.append((old, points.result[new]))
    return found


def _donated(module: HloModule, points: PointsTo) -> list[int]:
    found = [_parameter_part(points, number, index) for number, index in donated_parameters(module)]
    return [buffer for buffer in found if buffer is not None]


def _parameter_part(points: PointsTo, number: int, index: tuple[int, ...]) -> int | None:
    parts = points.parameter_parts().get(number)
    if parts is None:
        return None
    shape = points.computation.instructions[points.buffers[parts[0]].definer].shape
    part = part_at(shape, index)
    return None if part is None else parts[part]


def _note_changed_parts(module: HloModule, points: Mapping[str, PointsTo], callers: Mapping[str, Callers]) -> None:
    for name in callers:
        for place, instruction in enumerate(module.by_name[name].instructions):
            if instruction.opcode == "while":
                parts, buffers = points[name].parts[place], points[name].buffers
                changed = {part for part, buffer in enumerate(parts) if buffers[buffer].definer == place}
                for inner in scheduled_callees(instruction):
                    callers[inner].changed_parts |= changed


def _notes(module: HloModule, names: Mapping[str, Callers]) -> list[str]:
    instructions = [instruction for name in names for instruction in module.by_name[name].instructions]
    unknown = Counter(instruction.opcode for instruction in instructions if not is_known(instruction.opcode))
    found = [
        f"opcode {opcode!r} is not known ({times} instruction{'s' if times > 1 else ''}): only its result counts, "
        "it is ordered and never recomputed"
        for opcode, times in unknown.items()
    ]
    shapes = {part for instruction in instructions for part in instruction.shape.parts}
    types = sorted({shape.dtype for shape in shapes if not shape.is_tuple and not is_known_dtype(shape.dtype)})
    found += [f"element type {dtype!r} is not known: its elements count as zero bytes" for dtype in types]
    if any(None in shape.dims for shape in shapes):
        found.append("arrays with an unbounded dimension count as zero bytes")
    return found
