"""Pack several memory spaces with capacities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import MalformedInputError, UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph import Space
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.buffers import FREE, Buffers, Ints, live_pieces
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.pack import Packed, PackedSpaces, Spill, pack
from lowtide.engine.plan import Status

_MOST_RETURNS = 200


@dataclass(frozen=True, slots=True, eq=False)
class SpaceUnits:
    """Units of buffers that groups tie together."""

    unit_of: Ints
    choices: tuple[tuple[int, ...], ...]
    """Spaces per unit, in order of preference."""
    size_bytes: Ints


def pack_spaces(
    buffers: Buffers,
    spaces: Sequence[Space],
    choices: Sequence[Sequence[int]] | None = None,
    *,
    effort: EffortName = DEFAULT_EFFORT,
) -> PackedSpaces:
    """Return a space and an offset for every buffer, such that all capacities hold and few bytes spill.

    `choices` has a row per buffer: positions in `spaces`, in order of preference; by default all spaces in their order.
    Groups stay together, pairs apply within one space, and hints apply to the first choice.

    Greedy: while a space is too full, the smallest unit that covers its largest excess moves to its next choice, else
    the largest. Complexity: at most one packing per unit spilled and per return tried. Guarantees: deterministic;
    nothing spills if `pack` fits all first choices.

    Raises UsageError for no spaces or duplicate names, and the errors of `space_units` and `pack`.
    """
    if not spaces or len({space.name for space in spaces}) < len(spaces):
        raise UsageError("spaces must be at least one, each with a name of its own")
    assignment = _Assignment(buffers, spaces, space_units(buffers, len(spaces), choices), effort)
    assignment.spill()
    assignment.return_spilled()
    return assignment.result()


class _Assignment:
    def __init__(self, buffers: Buffers, spaces: Sequence[Space], units: SpaceUnits, effort: EffortName) -> None:
        self._buffers = buffers
        self._spaces = spaces
        self._units = units
        self._effort: EffortName = effort
        self._level = np.zeros(len(units.choices), np.int64)
        self._packed: dict[int, Packed] = {}

    def spill(self) -> None:
        todo = list(range(len(self._spaces)))
        while todo:
            space = todo.pop(0)
            while not self._fits(space):
                if self._packed[space].status == "interrupted":
                    return
                unit = self._unit_to_spill(space)
                if unit is None:
                    break
                self._level[unit] += 1
                following = self._space_of_unit(unit)
                self._packed.pop(space, None)
                self._packed.pop(following, None)
                if following not in todo:
                    todo.append(following)

    def return_spilled(self) -> None:
        spilled = np.flatnonzero(self._level > 0)
        largest: list[int] = spilled[np.argsort(-self._units.size_bytes[spilled], kind="stable")].tolist()
        for unit in largest[:_MOST_RETURNS]:
            now = int(self._level[unit])
            for level in range(now):
                before = dict(self._packed)
                self._level[unit] = level
                space, left = self._space_of_unit(unit), self._units.choices[unit][now]
                self._packed.pop(space, None)
                self._packed.pop(left, None)
                if self._bytes_fit(space) and self._fits(space) and self._fits(left):
                    break
                self._level[unit] = now
                self._packed = before

    def result(self) -> PackedSpaces:
        offsets = np.zeros(len(self._buffers), np.int64)
        for space in range(len(self._spaces)):
            self._fits(space)
            offsets[self._buffers_in(space)] = self._packed[space].offsets
        levels, choices = self._level[self._units.unit_of], self._units.choices
        units: list[int] = self._units.unit_of.tolist()
        rows = [choices[unit] for unit in units]
        spilled = tuple(
            Spill(
                buffer=buffer,
                wanted=rows[buffer][0],
                space=rows[buffer][int(levels[buffer])],
                too_large=int(self._buffers.sizes[buffer]) > self._capacity(rows[buffer][0]),
            )
            for buffer in np.flatnonzero(levels > 0).tolist()
        )
        return PackedSpaces(
            spaces=np.asarray([row[level] for row, level in zip(rows, levels.tolist(), strict=True)], np.int64),
            offsets=offsets,
            packed={space.name: self._packed[number] for number, space in enumerate(self._spaces)},
            spilled=spilled,
            status=self._status(spilled=bool(spilled)),
            spilled_bytes=int(self._buffers.sizes[levels > 0].sum()),
        )

    def _status(self, *, spilled: bool) -> Status:
        if all(self._fits(space) for space in range(len(self._spaces))):
            return "feasible" if spilled else "optimal"
        if any(packed.status == "interrupted" for packed in self._packed.values()):
            return "interrupted"
        return "infeasible" if self._is_impossible() else "stopped_by_work"

    def _is_impossible(self) -> bool:
        alone = [row[0] if len(row) == 1 else -1 for row in self._units.choices]
        for space in range(len(self._spaces)):
            bound_there = np.flatnonzero(np.asarray(alone, np.int64)[self._units.unit_of] == space)
            if self._pack(space, bound_there).status == "infeasible":
                return True
        most = [max(self._capacity(space) for space in row) for row in self._units.choices]
        alive = np.unique(live_pieces(self._buffers)[:, 0])
        if (self._buffers.sizes[alive] > np.asarray(most)[self._units.unit_of[alive]]).any():
            return True
        total = sum(self._capacity(space) for space in range(len(self._spaces)))
        loose = replace(self._buffers, fixed=None, apart=None, alignment=np.ones(len(self._buffers), np.int64))
        return lower_bound(items_of(loose).items).size_bytes > total

    def _space_of_unit(self, unit: int) -> int:
        return self._units.choices[unit][int(self._level[unit])]

    def _capacity(self, space: SpaceId) -> float:
        capacity = self._spaces[space].capacity_bytes
        return math.inf if capacity is None else capacity

    def _buffers_in(self, space: SpaceId) -> NDArray[np.intp]:
        homes = np.asarray([self._space_of_unit(unit) for unit in range(len(self._level))], np.int64)
        return np.flatnonzero(homes[self._units.unit_of] == space)

    def _fits(self, space: SpaceId) -> bool:
        if space not in self._packed:
            self._packed[space] = self._pack(space, self._buffers_in(space))
        return self._packed[space].arena_bytes <= self._capacity(space)

    def _pack(self, space: SpaceId, ids: NDArray[np.intp]) -> Packed:
        some = self._buffers.take(ids)
        about = self._spaces[space]
        hints = some.hints
        if hints is not None:
            hints = np.where(self._level[self._units.unit_of[ids]] == 0, hints, FREE)
        aligned = replace(some, alignment=np.lcm(some.alignment, about.alignment), hints=hints)
        return pack(aligned, capacity=about.capacity_bytes, effort=self._effort)

    def _live_bytes(self, space: SpaceId) -> tuple[Ints, Ints, Ints]:
        here = np.zeros(len(self._buffers), np.bool_)
        here[self._buffers_in(space)] = True
        pieces = live_pieces(self._buffers)
        pieces = pieces[here[pieces[:, 0]]]
        steps, ranks = np.unique(pieces[:, 1:], return_inverse=True)
        ranks = ranks.reshape(-1, 2)
        change = np.zeros(len(steps) + 1, np.int64)
        np.add.at(change, ranks[:, 0], self._buffers.sizes[pieces[:, 0]])
        np.subtract.at(change, ranks[:, 1], self._buffers.sizes[pieces[:, 0]])
        return pieces, steps, change.cumsum()[:-1]

    def _bytes_fit(self, space: SpaceId) -> bool:
        tied = self._buffers.aliases or self._buffers.may_overlap is not None
        return bool(tied) or int(self._live_bytes(space)[2].max(initial=0)) <= self._capacity(space)

    def _unit_to_spill(self, space: SpaceId) -> int | None:
        pieces, steps, live = self._live_bytes(space)
        over = int(live.max(initial=0)) - self._capacity(space)
        step = int(steps[int(live.argmax())]) if len(live) else 0
        alive = pieces[(pieces[:, 1] <= step) & (step < pieces[:, 2]), 0]
        candidates = self._movable(alive) if over > 0 else []
        if candidates:
            enough = [unit for unit in candidates if self._units.size_bytes[unit] >= over]
            sizes = self._units.size_bytes
            if enough:
                return min(enough, key=lambda unit: (int(sizes[unit]), unit))
            return max(candidates, key=lambda unit: (int(sizes[unit]), -unit))
        packed, ids = self._packed[space], self._buffers_in(space)
        high = ids[packed.offsets + self._buffers.sizes[ids] > self._capacity(space)]
        units = self._movable(high) or self._movable(ids)
        return min(units, key=lambda unit: (int(self._units.size_bytes[unit]), unit)) if units else None

    def _movable(self, buffers: Ints | NDArray[np.intp]) -> list[int]:
        units: list[int] = np.unique(self._units.unit_of[buffers]).tolist()
        return [
            unit
            for unit in units
            if self._level[unit] + 1 < len(self._units.choices[unit]) and self._units.size_bytes[unit] > 0
        ]


def space_units(buffers: Buffers, n_spaces: int, choices: Sequence[Sequence[int]] | None) -> SpaceUnits:
    """Join the buffers of groups into units, which may use all spaces without `choices`.

    Raises MalformedInputError for choices that are empty, unknown, repeated, missing or different within a group, and
    for a fixed buffer with several choices.
    """
    rows = [tuple(range(n_spaces))] * len(buffers) if choices is None else [tuple(map(int, row)) for row in choices]
    if len(rows) != len(buffers):
        raise MalformedInputError(f"choices has {len(rows)} rows for {len(buffers)} buffers; give one for each")
    head = list(range(len(buffers)))
    for group in (*buffers.aliases, *buffers.contiguous):
        joined = {head[member] for member in group}
        head = [min(joined) if each in joined else each for each in head]
    for buffer, row in enumerate(rows):
        if not row or len(set(row)) < len(row) or not all(0 <= space < n_spaces for space in row):
            raise MalformedInputError(
                f"buffer {buffers.name(buffer)}: choices {list(row)} do not name spaces, of {n_spaces}, once each"
            )
        if row != rows[head[buffer]]:
            names = f"{buffers.name(buffer)} and {buffers.name(head[buffer])}"
            raise MalformedInputError(f"buffers {names} are in one group, but their choices differ; give both the same")
        if len(row) > 1 and buffers.fixed is not None and buffers.fixed[buffer] != FREE:
            raise MalformedInputError(
                f"buffer {buffers.name(buffer)} has a fixed offset and {len(row)} choices of space; give it one"
            )
    heads, unit_of = np.unique(np.asarray(head, np.int64), return_inverse=True)
    sizes = np.zeros(len(heads), np.int64)
    np.add.at(sizes, unit_of, buffers.sizes)
    first_members: list[int] = heads.tolist()
    return SpaceUnits(unit_of.astype(np.int64), tuple(rows[each] for each in first_members), sizes)
