"""The oracle of packing: the least arena of up to about nine buffers, by trying for every clash both ways to end it.

Of two buffers that may not share bytes, one lies below the other. Once that is decided for some pairs, a least offset
for every buffer follows: all constraints only ever raise offsets, so raising until nothing is wrong ends in the least
of all solutions. Where two buffers still clash there, both orders are tried, the largest first. Offsets only grow with
decisions, so a branch is left when buffers of which no two may share bytes, each at its least offset or above, cannot
end below the best arena known. Exact; exponential in the number of clashes.
"""

from itertools import combinations, pairwise
from math import lcm

from lowtide.engine.packing import FREE, Buffers

Below = tuple[tuple[int, int], ...]
"""Decisions: pairs (lower, upper)."""


def least_arena(buffers: Buffers) -> int | None:
    """Return the bytes of the smallest arena; None where the constraints contradict one another."""
    rivals = [pair for pair in combinations(_placed(buffers), 2) if _are_rivals(buffers, *pair)]
    rivals.sort(key=lambda pair: -min(buffers.sizes[list(pair)]))
    crowds = _crowds(rivals)
    best: int | None = None
    beyond = _more_than_enough(buffers)
    undecided: list[Below] = [()]
    while undecided:
        decided = undecided.pop()
        offsets = _least_offsets(buffers, decided, beyond if best is None else best)
        if offsets is None or (best is not None and _least_end(buffers, offsets, crowds) >= best):
            continue
        clash = next((pair for pair in rivals if _share_bytes(buffers, offsets, *pair)), None)
        if clash is None:
            best = max((offsets[k] + int(buffers.sizes[k]) for k in _placed(buffers)), default=0)
        else:
            one, two = clash
            undecided += [(*decided, (one, two)), (*decided, (two, one))]
    return best


def _placed(buffers: Buffers) -> list[int]:
    """Return the buffers that have bytes and are alive at some step."""
    return [k for k in range(len(buffers)) if buffers.sizes[k] > 0 and _steps(buffers, k)]


def _steps(buffers: Buffers, buffer: int) -> set[int]:
    steps = set(range(int(buffers.first[buffer]), int(buffers.last[buffer])))
    for owner, first, last in [] if buffers.gaps is None else buffers.gaps.tolist():
        if owner == buffer:
            steps -= set(range(first, last))
    return steps


def _are_rivals(buffers: Buffers, one: int, two: int) -> bool:
    """Whether two buffers may not share bytes."""
    pair = {one, two}
    if buffers.apart is not None and any(set(row) == pair for row in buffers.apart.tolist()):
        return True
    if buffers.may_overlap is not None and any(set(row) == pair for row in buffers.may_overlap.tolist()):
        return False
    if any(pair <= set(group) for group in buffers.aliases):
        return False
    return bool(_steps(buffers, one) & _steps(buffers, two))


def _crowds(rivals: list[tuple[int, int]]) -> list[list[int]]:
    """Return for each pair of rivals a set of buffers that are all rivals of one another, with that pair in it."""
    known = set(rivals) | {(two, one) for one, two in rivals}
    crowds: list[list[int]] = []
    for pair in rivals:
        crowd = list(pair)
        for other in sorted({k for rival in rivals for k in rival} - set(pair)):
            if all((other, member) in known for member in crowd):
                crowd.append(other)
        crowds.append(sorted(crowd))
    return [crowd for number, crowd in enumerate(crowds) if crowd not in crowds[:number]]


def _least_end(buffers: Buffers, offsets: list[int], crowds: list[list[int]]) -> int:
    """Return where the highest buffer ends at least if all lie at their offsets or above and no crowd shares bytes."""
    highest = 0
    for crowd in crowds:
        end = 0
        for k in sorted(crowd, key=lambda k: offsets[k]):
            end = max(end, offsets[k]) + int(buffers.sizes[k])
        highest = max(highest, end)
    return highest


def _share_bytes(buffers: Buffers, offsets: list[int], one: int, two: int) -> bool:
    return offsets[one] < offsets[two] + buffers.sizes[two] and offsets[two] < offsets[one] + buffers.sizes[one]


def _more_than_enough(buffers: Buffers) -> int:
    """Return an arena that every instance without a contradiction fits into, exclusive.

    Above everything that is fixed, buffers fit one above the other, each group after padding to a common alignment.
    """
    common = lcm(*buffers.alignment.tolist())
    fixed = 0 if buffers.fixed is None else max(buffers.fixed.tolist())
    return fixed + int(buffers.sizes.sum()) * 2 + common * (2 * len(buffers) + 2)


def _least_offsets(buffers: Buffers, below: Below, beyond: int) -> list[int] | None:
    """Return the least offsets that meet all but clashes not yet decided; None where one ends at `beyond` or later."""
    placed = _placed(buffers)
    sizes, alignment = buffers.sizes.tolist(), buffers.alignment.tolist()
    fixed = [FREE] * len(buffers) if buffers.fixed is None else buffers.fixed.tolist()
    aliases = [[k for k in group if k in placed] for group in buffers.aliases]
    runs = [[k for k in group if k in placed] for group in buffers.contiguous]
    neighbors = [pair for live in runs for pair in pairwise(live)]
    offsets = [max(0, offset) for offset in fixed]
    steps = alignment.copy()
    for group in aliases:
        for k in group:
            steps[k] = lcm(*(alignment[other] for other in group))
    starts = {live[0]: lcm(*(steps[k] for k in live)) for live in runs if live}
    while True:
        least = offsets.copy()
        for lower, upper in below:
            least[upper] = max(least[upper], offsets[lower] + sizes[lower])
        for group in aliases:
            for k in group:
                least[k] = max(least[k], *(offsets[other] for other in group))
        for lower, upper in neighbors:
            least[upper] = max(least[upper], offsets[lower] + sizes[lower])
            # more than one alignment of padding is too much
            least[lower] = max(least[lower], offsets[upper] - steps[upper] + 1 - sizes[lower])
        for k in placed:
            step = starts.get(k, steps[k])
            least[k] = -(-least[k] // step) * step
            if fixed[k] not in (FREE, least[k]) or least[k] + sizes[k] >= beyond:
                return None
        if least == offsets:
            return offsets
        offsets = least
