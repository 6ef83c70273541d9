"""The third stage of verification: one address for every residency, and no two live ones over the same bytes."""

from dataclasses import dataclass

import numpy as np

from lowtide.errors import VerificationError
from lowtide.graph import Graph, Lifetime
from lowtide.index_spaces import BufferId, SpaceId, StepIndex
from lowtide.plan.plan import BEFORE_THE_FIRST_STEP, HOME, Address, Plan
from lowtide.plan.sorted_ranks import SortedRanks
from lowtide.plan.steps import StepKind
from lowtide.plan.versions import program_versions

_Key = tuple[BufferId, SpaceId, StepIndex]
"""What tells residencies apart: the buffer, where it stays, and the step that allocates it."""
_LAST_ADDRESS = 2**62


@dataclass(slots=True)
class _Residency:
    """One stay of a buffer in a memory space, steps half-open."""

    buffer: BufferId
    space: SpaceId
    first_step: StepIndex
    last_step: StepIndex
    continues: "_Residency | None" = None
    """The residency whose storage this one takes over."""

    @property
    def key(self) -> _Key:
        return self.buffer, self.space, self.first_step


def verify_addresses(graph: Graph, plan: Plan) -> None:
    """Raise VerificationError unless the addresses of an executable plan are complete, aligned and free of overlaps.

    Every residency that has bytes and that the peak counts needs exactly one address. It starts at the step that
    allocates the buffer; inputs are there from step 0, those that go with step 0 from `BEFORE_THE_FIRST_STEP`. It ends
    at the step that frees the buffer, at the run that takes over its storage, or at the number of steps. Where a rerun
    writes a buffer that is still resident, the old residency ends one step after the new one starts. O(k log k)
    comparisons for k addresses.
    """
    given: dict[_Key, Address] = {}
    for address in plan.addresses:
        key = (address.buffer, address.space, address.first_step)
        if not 0 <= address.buffer < graph.n_buffers or not 0 <= address.space < len(graph.spaces):
            raise VerificationError(f"address {address}: there is no such buffer or memory space in the graph")
        if given.setdefault(key, address) is not address:
            raise VerificationError(f"{_describe(graph, address)} is there twice; give one address per residency")
    residencies = _residencies(graph, plan)
    for residency in residencies:
        _check_residency(graph, residency, given)
    if len(given) > len(residencies):
        keys = {residency.key for residency in residencies}
        extra = next(address for key, address in given.items() if key not in keys)
        raise VerificationError(f"{_describe(graph, extra)} matches no residency of the plan; remove it")
    for address in plan.addresses:
        _check_offset(graph, plan, address)
    for space in range(len(graph.spaces)):
        _check_overlaps(graph, [address for address in plan.addresses if address.space == space])


def _residencies(graph: Graph, plan: Plan) -> list[_Residency]:
    """List every residency with a size that the peak counts; the plan has been found executable."""
    versions = program_versions(graph)
    sizes, homes, lifetimes = graph.sizes.tolist(), graph.buffer_spaces.tolist(), graph.lifetimes.tolist()
    found: list[_Residency] = []
    present: dict[tuple[BufferId, SpaceId], _Residency] = {}

    def start(buffer: BufferId, space: SpaceId, step: StepIndex, continues: _Residency | None = None) -> None:
        if sizes[buffer] == 0 or (lifetimes[buffer] == Lifetime.PERSISTENT and space == homes[buffer]):
            return
        present[buffer, space] = _Residency(buffer, space, step, plan.n_steps, continues)
        found.append(present[buffer, space])

    def end(buffer: BufferId, space: SpaceId, step: StepIndex) -> _Residency | None:
        residency = present.pop((buffer, space), None)
        if residency is not None:
            residency.last_step = step
        return residency

    for buffer, lifetime in enumerate(lifetimes):
        if lifetime in (Lifetime.INPUT, Lifetime.DONATED):
            start(buffer, homes[buffer], 0)
    for step, (kind, target, space, pairs) in enumerate(
        zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), plan.pairs, strict=True)
    ):
        if kind == StepKind.RUN:
            taken = zip(pairs[::2], pairs[1::2], strict=True)
            handed = {written: end(read, homes[read], step) for read, written in taken}
            for buffer in versions.allocated_by(target):
                end(buffer, homes[buffer], step + 1)
                start(buffer, homes[buffer], step, handed.get(buffer))
        elif kind == StepKind.FREE:
            end(target, homes[target] if space == HOME else space, step)
        else:
            start(target, space if kind == StepKind.COPY_OUT else homes[target], step)
    for residency in found:
        if residency.first_step == residency.last_step:
            residency.first_step = BEFORE_THE_FIRST_STEP
    return found


def _check_residency(graph: Graph, residency: _Residency, given: dict[_Key, Address]) -> None:
    address = given.get(residency.key)
    name = repr(graph.buffer_names[residency.buffer])
    steps = f"[{residency.first_step}, {residency.last_step})"
    if address is None:
        space = graph.spaces[residency.space].name
        raise VerificationError(f"buffer {name} has no address in memory space {space!r} for steps {steps}; add one")
    if address.last_step != residency.last_step:
        raise VerificationError(f"{_describe(graph, address)} should cover steps {steps}; correct its last step")
    if residency.continues is not None:
        before = given[residency.continues.key]
        if before.offset != address.offset:
            raise VerificationError(
                f"{_describe(graph, address)} takes over the storage of buffer {graph.buffer_names[before.buffer]!r} "
                f"at {before.offset}; both must have one offset"
            )


def _check_offset(graph: Graph, plan: Plan, address: Address) -> None:
    space = graph.spaces[address.space]
    if address.offset < 0 or address.offset % space.alignment:
        raise VerificationError(
            f"{_describe(graph, address)} has an offset that is negative or no multiple of {space.alignment}, the "
            f"alignment of memory space {space.name!r}; move it"
        )
    end, arena = address.offset + int(graph.sizes[address.buffer]), plan.arena_bytes.get(space.name)
    if end > _LAST_ADDRESS:
        raise VerificationError(f"{_describe(graph, address)} ends at {end}, where no memory reaches; move it")
    if arena is not None and end > arena:
        raise VerificationError(
            f"{_describe(graph, address)} ends at {end}, beyond the arena of {arena} bytes in memory space "
            f"{space.name!r}; move it or enlarge the arena"
        )


def _check_overlaps(graph: Graph, addresses: list[Address]) -> None:
    """Sweep over the steps; of what is live, only neighbors by offset can overlap."""
    table = np.array([(a.buffer, a.space, a.first_step, a.last_step, a.offset) for a in addresses], np.int64)
    buffers, spaces, firsts, lasts, offsets = table.reshape(-1, 5).T
    # Inputs are all there before the first step, also those that step 0 frees.
    at_start = (firsts == 0) & (spaces == graph.buffer_spaces[buffers]) & (graph.lifetimes[buffers] <= Lifetime.DONATED)
    firsts = np.where(at_start, BEFORE_THE_FIRST_STEP, firsts)
    by_offset = np.argsort(offsets, kind="stable")
    starts, ends = offsets[by_offset].tolist(), (offsets + graph.sizes[buffers])[by_offset].tolist()
    ranks = np.argsort(by_offset)
    order = np.lexsort((offsets, firsts))
    ending = np.argsort(lasts, kind="stable")
    leaving, left_at, gone = ranks[ending].tolist(), lasts[ending].tolist(), 0
    live = SortedRanks(len(addresses))
    for rank, first in zip(ranks[order].tolist(), firsts[order].tolist(), strict=True):
        while left_at[gone] <= first:
            live.remove(leaving[gone])
            gone += 1
        lower, upper = live.below(rank), live.above(rank)
        for other in (lower, upper):
            if other is not None and starts[rank] < ends[other] and starts[other] < ends[rank]:
                one, two = (_describe(graph, addresses[int(by_offset[each])]) for each in (rank, other))
                raise VerificationError(f"{one} overlaps {two} at step {max(first, 0)}; move one of them")
        live.add(rank)


def _describe(graph: Graph, address: Address) -> str:
    name, space = graph.buffer_names[address.buffer], graph.spaces[address.space].name
    return (
        f"address of buffer {name!r} at {address.offset} in memory space {space!r} "
        f"for steps [{address.first_step}, {address.last_step})"
    )
