"""Optimizer state on the host, so that a step meets its budget or recomputes less."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.engine.offload.updates import LEAST_BYTES
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.program import ALL
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.jax.fitting.search import FitFound, FitSearch
from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.flat.traced import HostState
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.reading.sizes import bytes_of


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """A donated argument that only its update uses, and the result that replaces it."""

    argument: int
    result: int


def state_leaves(program: FlatProgram) -> list[StateLeaf]:
    """Return the state of a training step.

    State is a donated argument all of whose dependent results have its shape, as under element-wise optimizers. Of
    those with its dtype, the result that takes the fewest equations replaces it. O(donated * equations).
    """
    results: dict[Value, int] = {}
    for place, atom in enumerate(program.outputs):
        if isinstance(atom, int):
            results.setdefault(atom, place)
    readers: dict[Value, list[Value]] = {}
    for equation in program.equations:
        for value in dict.fromkeys(equation.reads):
            readers.setdefault(value, []).extend(equation.outputs)
    leaves: dict[int, StateLeaf] = {}
    taken: set[int] = set()
    for _, argument, result in sorted(_pairs(program, results, readers)):
        if argument not in leaves and result not in taken:
            leaves[argument] = StateLeaf(argument, result)
            taken.add(result)
    return list(leaves.values())


def _pairs(
    program: FlatProgram, results: Mapping[Value, int], readers: Mapping[Value, Sequence[Value]]
) -> Iterator[tuple[int, int, int]]:
    """Yield numbers of equations, and places of arguments and results that may replace them."""
    for argument, value in enumerate(program.inputs):
        kind = program.types[value]
        if value not in program.donated or bytes_of(kind) < LEAST_BYTES:
            continue
        found: list[tuple[int, int, int]] = []
        for end, distance in _reached(value, readers):
            if end in results and program.types[end].shape != kind.shape:
                break
            if end in results and program.types[end].dtype == kind.dtype:
                found.append((distance, argument, results[end]))
        else:
            yield from found


def _reached(start: Value, readers: Mapping[Value, Sequence[Value]]) -> Iterator[tuple[Value, int]]:
    """Yield the values that depend on one, and their least numbers of equations after it, nearest first."""
    seen, nearest, distance = {start}, [start], 0
    while nearest:
        distance += 1
        nearest = [each for value in nearest for each in readers.get(value, ())]
        nearest = [each for each in dict.fromkeys(nearest) if each not in seen]
        seen.update(nearest)
        yield from ((value, distance) for value in nearest)


@dataclass(frozen=True, slots=True)
class HostStateSearch:
    """Searches with more or less of a step's state on the host."""

    search: FitSearch
    """Without state on the host."""
    settings: PlanSettings
    link_bytes_per_s: float

    def fit(self, target: int) -> FitFound:
        """Return the first function that fits, or else the closest one; `target` is for all state on the device.

        Shares of the state, in eighths, are priced by their copies and by the recomputation that the model needs with
        the room they leave. They are compiled in this order.
        """
        form, structs = self.search.unmodified_form, self.search.traced.structs
        leaves = state_leaves(form.translation.program if form.mesh is None else form.mesh.outer)
        if not leaves or self.search.unmodified.figures.temp_bytes <= target:
            return self.search.fit(target)
        leaves.sort(key=lambda leaf: (-_bytes_per_device(structs[leaf.argument]), leaf.argument))
        counts = dict.fromkeys(-(-len(leaves) * eighths // ALL) for eighths in range(ALL + 1))
        shares = [_state(leaves[:count], structs) for count in counts]
        tried: list[FitFound] = []
        for _, state in sorted(((self._estimate(target, each), each) for each in shares), key=lambda pair: pair[0]):
            tried.append(self._fit(target, state))
            if tried[-1].fits:
                break
        return min(tried, key=lambda found: found.missed_bytes)

    def _fit(self, target: int, state: HostState) -> FitFound:
        if not state.n_bytes:
            return self.search.fit(target)
        results = jax.tree.leaves(self.search.unmodified.executable.output_shardings)
        moved = FitSearch(self.search.traced.with_state_on_host(state, results), self.settings)
        return replace(moved.fit(target + state.n_bytes), unmodified=self.search.unmodified.figures)

    def _estimate(self, target: int, state: HostState) -> tuple[int, float, int]:
        """Return by how many bytes the model misses the target, and the seconds and bytes of the copies."""
        form, temp_bytes = self.search.unmodified_form, self.search.unmodified.figures.temp_bytes
        limit = max(0, target + state.n_bytes) * form.peak_bytes // max(1, temp_bytes)
        planned = find_plan(form.translation.graph, replace(self.settings, budget=max(1, limit), transient=True))
        missed = 0 if planned.shortfall is None else planned.shortfall.missed_bytes
        return missed, planned.extra_cost + 2 * state.n_bytes / self.link_bytes_per_s, state.n_bytes


def _bytes_per_device(struct: Any) -> int:
    shape = struct.shape if struct.sharding is None else struct.sharding.shard_shape(struct.shape)
    return bytes_of(jax.ShapeDtypeStruct(shape, struct.dtype))


def _state(leaves: Sequence[StateLeaf], structs: Sequence[Any]) -> HostState:
    return HostState(
        arguments=tuple(leaf.argument for leaf in leaves),
        results=tuple(leaf.result for leaf in leaves),
        n_bytes=sum(_bytes_per_device(structs[leaf.argument]) for leaf in leaves),
    )
