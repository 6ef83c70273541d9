"""Liu's algorithm of 1987 for the least peak of a tree, written plainly on lists of hills and valleys."""

from collections.abc import Sequence

Segment = tuple[int, int]
"""A hill and the valley after it, in bytes held by the subtree."""


def liu_peak(parents: Sequence[int], sizes: Sequence[int], scratch: Sequence[int]) -> int:
    """Return the least peak of evaluating a tree whose nodes come before their parents (-1 at the root).

    A node holds its children's results, its own and its scratch while it runs, and its own result afterwards. O(n^2).
    """
    segments: list[list[Segment]] = []
    held = [0] * len(parents)
    children: list[list[list[Segment]]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        profile = _merged(children[node])
        profile.append((held[node] + sizes[node] + scratch[node], sizes[node]))
        segments.append(_hills_and_valleys(profile))
        if parent >= 0:
            children[parent].append(segments[node])
            held[parent] += sizes[node]
    return segments[-1][0][0]


def _merged(trees: Sequence[Sequence[Segment]]) -> list[Segment]:
    """Interleave the segments of several subtrees: those that give most back come first."""
    steps = [
        (hill - valley, tree, place) for tree, known in enumerate(trees) for place, (hill, valley) in enumerate(known)
    ]
    now = [0] * len(trees)
    profile: list[Segment] = []
    for _, tree, place in sorted(steps, key=lambda step: (-step[0], step[1], step[2])):
        others = sum(now) - now[tree]
        hill, now[tree] = trees[tree][place]
        profile.append((others + hill, others + now[tree]))
    return profile


def _hills_and_valleys(profile: Sequence[Segment]) -> list[Segment]:
    """Keep the highest hill, the lowest valley after it, the highest hill after that, and so on."""
    kept: list[Segment] = []
    rest = list(profile)
    while rest:
        hill = max(point[0] for point in rest)
        top = max(place for place, point in enumerate(rest) if point[0] == hill)
        valley = min(point[1] for point in rest[top:])
        bottom = max(place for place, point in enumerate(rest) if place >= top and point[1] == valley)
        kept.append((hill, valley))
        rest = rest[bottom + 1 :]
    return kept
