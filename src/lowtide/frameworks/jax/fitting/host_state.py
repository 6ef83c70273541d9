"""Optimizer state on the host, so that a step meets its budget or recomputes less."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.engine.offload.updates import LEAST_BYTES
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.program import ALL
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.jax.fitting.search import FitFound, FitSearch
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.flat.traced import HostState
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.reading.sizes import bytes_of


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """A donated argument that only its update uses, and the result that replaces it."""

    argument: int
    result: int
    n_bytes: int


def state_leaves(program: FlatProgram) -> list[StateLeaf]:
    """Return the state of a training step, largest first.

    State is a donated argument all of whose dependent results have its shape, as under element-wise optimizers. Of
    those with its dtype, the result that takes the fewest equations replaces it. O(state * equations).
    """
    results: dict[Value, list[int]] = {}
    for place, atom in enumerate(program.outputs):
        if isinstance(atom, int):
            results.setdefault(atom, []).append(place)
    readers: dict[Value, list[Sequence[Value]]] = {}
    for equation in program.equations:
        for value in dict.fromkeys(equation.reads):
            readers.setdefault(value, []).append(equation.outputs)
    found = list(_pairs(program, results, readers))
    leaves: dict[int, StateLeaf] = {}
    taken: set[int] = set()
    for _, argument, result, n_bytes in sorted(found):
        if argument not in leaves and result not in taken:
            leaves[argument] = StateLeaf(argument, result, n_bytes)
            taken.add(result)
    return sorted(leaves.values(), key=lambda leaf: (-leaf.n_bytes, leaf.argument))


def _pairs(
    program: FlatProgram, results: Mapping[Value, Sequence[int]], readers: Mapping[Value, Sequence[Sequence[Value]]]
) -> Iterator[tuple[int, int, int, int]]:
    for argument, value in enumerate(program.inputs):
        kind = program.types[value]
        if value not in program.donated or bytes_of(kind) < LEAST_BYTES:
            continue
        reached = _distances(value, readers)
        ends = {result: distance for result, distance in reached.items() if result in results and result != value}
        if any(program.types[end].shape != kind.shape for end in ends):
            continue
        for end, distance in ends.items():
            if program.types[end].dtype == kind.dtype:
                yield from ((distance, argument, place, bytes_of(kind)) for place in results[end][:1])


def _distances(start: Value, readers: Mapping[Value, Sequence[Sequence[Value]]]) -> dict[Value, int]:
    distances, waiting = {start: 0}, deque([start])
    while waiting:
        value = waiting.popleft()
        for made in readers.get(value, ()):
            for each in made:
                if each not in distances:
                    distances[each] = distances[value] + 1
                    waiting.append(each)
    return distances


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
        traced, best = self.search.traced, None
        found = state_leaves(flatten(traced.jaxpr, traced.name, traced.donated, traced.platform))
        leaves = [replace(leaf, n_bytes=_bytes_per_device(traced.structs[leaf.argument])) for leaf in found]
        if not leaves or self.search.unmodified.figures.temp_bytes <= target:
            return self.search.fit(target)
        counts = dict.fromkeys(-(-len(leaves) * eighths // ALL) for eighths in range(ALL + 1))
        shares = [_state(leaves[:count]) for count in counts]
        for _, state in sorted(((self._estimate(target, each), each) for each in shares), key=lambda pair: pair[0]):
            fitted = self._fit(target, state)
            if best is None or fitted.missed_bytes < best.missed_bytes:
                best = fitted
            if fitted.fits:
                break
        return best or self.search.fit(target)

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


def _state(leaves: Sequence[StateLeaf]) -> HostState:
    return HostState(
        arguments=tuple(leaf.argument for leaf in leaves),
        results=tuple(leaf.result for leaf in leaves),
        n_bytes=sum(leaf.n_bytes for leaf in leaves),
    )
