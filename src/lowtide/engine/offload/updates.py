"""Find updates of parameters, and choose which run on the host."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.costs.estimates import POINTWISE, plain_kind
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.offload.host_space import Link

UpdatePlace = Literal["device", "host", "either"]
"""Where parameters with state on the host are updated; "either" balances link and host memory."""
_OPTIMIZERS = frozenset({"adam", "adamw", "sgd", "adagrad"})
"""Optimizers whose whole update is one op, such as `_fused_adam_` in PyTorch."""
LEAST_BYTES = 1024
"""Smaller buffers stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The ops updating one parameter, and their large buffers."""

    ops: tuple[OpId, ...]
    again: tuple[OpId, ...]
    """Small ops that the update repeats instead of waiting for them."""
    state: tuple[BufferId, ...]
    copied: tuple[BufferId, ...]
    """Device buffers that it reads: the gradient, and a parameter without master weights."""
    returned: tuple[BufferId, ...]
    small: tuple[BufferId, ...]
    counts: tuple[BufferId, ...]


def is_element_wise(kind: str) -> bool:
    """Return whether every element of an op's results depends only on the same elements of its operands."""
    name = plain_kind(kind).removeprefix("_foreach_").removesuffix("_").removeprefix("_fused_")
    return name in POINTWISE or name in _OPTIMIZERS or name in ("zero", "_to_copy")


def find_updates(graph: Graph, state: Iterable[BufferId], parameters: Collection[BufferId] = ()) -> list[Update]:
    """Return the element-wise updates of parameters with large state, in program order. O(accesses)."""
    repeatable = _repeatable_ops(graph)
    found: list[Update] = []
    for ops, own_state in _Groups(graph, state, parameters).found():
        body = _Body(graph, repeatable, set(ops), ops[-1], set(own_state))
        body.take_preparations()
        update = body.update()
        found += [] if update is None else [update]
    return sorted(found, key=lambda update: update.ops[-1])


def balanced(graph: Graph, updates: Sequence[Update], link: Link, memory_bytes_per_s: float) -> list[Update]:
    """Return the updates that run on the host so that link and host memory finish soonest.

    Greedy, the largest first. O(n log n).
    """
    sizes = graph.sizes
    busy = np.zeros(3)
    chosen: list[Update] = []

    def total(buffers: Sequence[BufferId]) -> float:
        return float(sizes[list(buffers)].sum())

    for update in sorted(updates, key=lambda each: (-total(each.state), each.ops)):
        state, out, back = total(update.state), total(update.copied), total(update.returned)
        moved = np.array([state / link.out_bytes_per_s, state / link.back_bytes_per_s, 0.0])
        traffic = out + 2 * state + back
        there = np.array([out / link.out_bytes_per_s, back / link.back_bytes_per_s, traffic / memory_bytes_per_s])
        if (busy + there).max() < (busy + moved).max():
            chosen.append(update)
            busy += there
        else:
            busy += moved
    return chosen


def updates_to_move(
    graph: Graph,
    state: Sequence[BufferId],
    link: Link,
    memory_bytes_per_s: float,
    place: UpdatePlace,
    parameters: Collection[BufferId] = (),
) -> list[Update]:
    """Return the updates of state on the host that run there, in program order. `parameters` are there, too."""
    updates = [] if place == "device" else find_updates(graph, state, parameters)
    chosen = balanced(graph, updates, link, memory_bytes_per_s) if place == "either" else updates
    return sorted(chosen, key=lambda update: update.ops[-1])


class _Groups:
    def __init__(self, graph: Graph, state: Iterable[BufferId], parameters: Collection[BufferId]) -> None:
        self._graph = graph
        self._state = [*state, *parameters]
        self._parameters = set(parameters)
        self._parents = list(range(len(self._state)))
        self._of: dict[BufferId, int] = {buffer: group for group, buffer in enumerate(self._state)}
        self._ops: list[tuple[OpId, int]] = []
        self._spoiled: set[int] = set()
        self._walk()

    def found(self) -> list[tuple[list[OpId], list[BufferId]]]:
        spoiled = {self._find(group) for group in self._spoiled}
        groups: dict[int, tuple[list[OpId], list[BufferId]]] = {}
        for op, group in self._ops:
            groups.setdefault(self._find(group), ([], []))[0].append(op)
        for group, buffer in enumerate(self._state):
            if (owner := self._find(group)) in groups:
                groups[owner][1].append(buffer)
        return [each for group, each in groups.items() if group not in spoiled]

    def _walk(self) -> None:
        graph = self._graph
        wise = {kind: is_element_wise(kind) for kind in set(graph.op_kinds)}
        rows = zip(graph.structure.touches, graph.structure.allocates, graph.op_kinds, strict=True)
        for op, (touched, made, kind) in enumerate(rows):
            changed = graph.mutates[op].tolist()
            groups = [
                self._of[buffer]
                for buffer in touched
                if buffer in self._of and (buffer not in self._parameters or buffer in changed)
            ]
            if not groups:
                continue
            for other in groups[1:]:
                self._parents[self._find(other)] = self._find(groups[0])
            self._ops.append((op, groups[0]))
            self._of.update(dict.fromkeys(made, groups[0]))
            if not wise[kind] or graph.ordered[op] or graph.callees[op]:
                self._spoiled.add(groups[0])

    def _find(self, group: int) -> int:
        while self._parents[group] != group:
            self._parents[group] = group = self._parents[self._parents[group]]
        return group


def _repeatable_ops(graph: Graph) -> set[OpId]:
    is_fixed = graph.sizes < LEAST_BYTES
    is_fixed[graph.mutates.values] = False
    rows = zip(graph.structure.touches, graph.structure.allocates, strict=True)
    return {
        op
        for op, (touched, made) in enumerate(rows)
        if graph.pure[op] and made and not graph.callees[op] and is_fixed[touched].all() and is_fixed[made].all()
    }


@dataclass(slots=True, eq=False)
class _Body:
    graph: Graph
    repeatable: Collection[OpId]
    inside: set[OpId]
    last: OpId
    state: set[BufferId]
    again: set[OpId] = field(default_factory=set[OpId])

    def take_preparations(self) -> None:
        """Take ops that prepare operands: the gradient in float32, the count of steps, factors of the learning rate."""
        before = -1
        while before < len(self.inside) + len(self.again):
            before = len(self.inside) + len(self.again)
            for buffer in sorted(self._operands()):
                op = int(self.graph.structure.producers[buffer])
                if preparing := self._preparing(buffer):
                    self.inside.update(preparing)
                elif op not in self.inside and op in self.repeatable:
                    self.again.add(op)

    def update(self) -> Update | None:
        graph = self.graph
        ops = sorted(self.inside)
        own = {buffer for op in ops for buffer in graph.structure.allocates[op].tolist()}
        again = {buffer for op in self.again for buffer in graph.structure.allocates[op].tolist()}
        if any(graph.lifetimes[buffer] != Lifetime.INTERMEDIATE or not self._only_here(buffer) for buffer in own):
            return None
        if any(self._is_used_between(buffer, changed=True) for buffer in self.state):
            return None
        operands = sorted(self._operands() - own - again)
        large = [buffer for buffer in operands if graph.sizes[buffer] >= LEAST_BYTES]
        changed = {buffer for op in ops for buffer in graph.mutates[op].tolist()} - self.state - own
        if any(buffer not in large and not self._only_here(buffer) for buffer in changed):
            return None
        if any(self._is_used_between(buffer, changed=buffer in changed) for buffer in operands):
            return None
        returned = [buffer for buffer in large if buffer in changed and not self._is_last_use(buffer)]
        return Update(
            ops=tuple(ops),
            again=tuple(sorted(self.again)),
            state=tuple(sorted(self.state)),
            copied=tuple(buffer for buffer in large if not self._is_overwritten_first(buffer)),
            returned=tuple(returned),
            small=tuple(buffer for buffer in operands if buffer not in large),
            counts=tuple(sorted(changed.difference(large))),
        )

    def _operands(self) -> set[BufferId]:
        return {buffer for op in (*self.inside, *self.again) for buffer in self._touched_by(op)} - self.state

    def _touched_by(self, op: OpId) -> list[BufferId]:
        return self.graph.structure.touches[op].tolist()

    def _users(self, buffer: BufferId) -> list[OpId]:
        return self.graph.structure.users[buffer].tolist()

    def _only_here(self, buffer: BufferId) -> bool:
        return self.inside.issuperset(self._users(buffer))

    def _preparing(self, buffer: BufferId) -> list[OpId]:
        graph = self.graph
        if graph.persistent[buffer]:
            others = [op for op in self._users(buffer) if op not in self.inside]
            alone = graph.sizes[buffer] < LEAST_BYTES and all(
                op < self.last and graph.mutates[op].tolist() == [buffer] and not len(graph.writes[op])
                and is_element_wise(graph.op_kinds[op])
                for op in others
            )  # fmt: skip
            return others if alone else []
        op = int(graph.structure.producers[buffer])
        if op < 0 or op in self.inside or not self._only_here(buffer):
            return []
        made = graph.structure.allocates[op].tolist()
        read = [each for each in self._touched_by(op) if graph.sizes[each] >= LEAST_BYTES]
        is_smaller = graph.sizes[read].sum() <= graph.sizes[made].sum()
        is_fixed = all(self._is_written_once(each) for each in self._touched_by(op))
        is_plain = graph.pure[op] and is_element_wise(graph.op_kinds[op]) and not graph.callees[op]
        return [op] if is_plain and is_smaller and is_fixed and len(made) == 1 else []

    def _is_written_once(self, buffer: BufferId) -> bool:
        if self.graph.sizes[buffer] < LEAST_BYTES:
            return True
        return not any(buffer in self.graph.mutates[op] for op in self._users(buffer))

    def _is_used_between(self, buffer: BufferId, *, changed: bool) -> bool:
        users = self._users(buffer)
        first = min((op for op in users if op in self.inside), default=self.last)
        between = [op for op in users if first < op < self.last and op not in self.inside]
        return bool(between) and (changed or any(buffer in self.graph.mutates[op] for op in between))

    def _is_last_use(self, buffer: BufferId) -> bool:
        return not self.graph.exists_at_end[buffer] and self._users(buffer)[-1] <= self.last

    def _is_overwritten_first(self, buffer: BufferId) -> bool:
        first = min(op for op in self._users(buffer) if op in self.inside)
        return plain_kind(self.graph.op_kinds[first]) == "copy_" and self.graph.mutates[first].tolist() == [buffer]
