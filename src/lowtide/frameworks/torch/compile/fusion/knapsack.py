"""An exact choice of saved tensors for PyTorch's `activation_memory_budget`."""

from collections.abc import Sequence

from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.inductor import CustomKnapsackSolver, CustomRuntimeEstimator
from lowtide.frameworks.torch.planning.options import package_identity
from lowtide.frameworks.torch.reading.costs import seconds_of
from lowtide.frameworks.torch.reading.effects import is_random

_MOST_NODES = 200_000
_DIGITS = 4
"""Digits of memory shares, as in PyTorch's solvers: a few bytes must not displace a large tensor."""


class RooflineRuntime(CustomRuntimeEstimator):
    """Prices of ops; see `seconds_of`."""

    def __call__(self, node: Node) -> float:
        return seconds_of(node)

    def uuid(self) -> str:
        return package_identity()


class ExactKnapsack(CustomKnapsackSolver):
    """Saves the ops that take longest to recompute, and every random draw.

    A recomputed draw has other values: with PyTorch's solvers, gradients of dropout may differ silently.
    """

    def __call__(
        self,
        memory: list[float],
        joint_graph: Graph,
        max_memory: float,
        node_info: object,
        all_recomputable_banned_nodes: list[Node],
    ) -> tuple[list[int], list[int]]:
        random = [place for place, node in enumerate(all_recomputable_banned_nodes) if is_random(node)]
        others = [place for place in range(len(memory)) if place not in set(random)]
        memory = [round(share, _DIGITS) for share in memory]
        left = round(max_memory, _DIGITS) - sum(memory[place] for place in random)
        seconds = [seconds_of(all_recomputable_banned_nodes[place]) for place in others]
        chosen = knapsack([memory[place] for place in others], seconds, left + 10**-_DIGITS / 2)
        saved = sorted([*random, *(others[index] for index in chosen)])
        return saved, [place for place in range(len(memory)) if place not in set(saved)]

    def uuid(self) -> str:
        return package_identity()


def knapsack(weights: Sequence[float], values: Sequence[float], capacity: float) -> list[int]:
    """Return the items of highest total value within a capacity, ascending.

    Branch and bound by the fractional knapsack (Dantzig). Optimal if it ends within 200,000 nodes, else at least as
    good as greedy by density. Deterministic.
    """
    items = [item for item in range(len(weights)) if weights[item] <= capacity]
    items.sort(key=lambda item: (-values[item] / weights[item] if weights[item] > 0 else float("-inf"), item))
    best: tuple[float, list[int]] = (0.0, [])
    waiting: list[tuple[int, float, float, list[int]]] = [(0, capacity, 0.0, [])]
    for _ in range(_MOST_NODES):
        if not waiting:
            break
        place, left, value, taken = waiting.pop()
        if value > best[0]:
            best = value, taken
        if place == len(items) or value + _upper_bound(items, place, weights, values, left) <= best[0]:
            continue
        item = items[place]
        waiting.append((place + 1, left, value, taken))
        if weights[item] <= left:
            waiting.append((place + 1, left - weights[item], value + values[item], [*taken, item]))
    return sorted(best[1])


def _upper_bound(
    items: Sequence[int], place: int, weights: Sequence[float], values: Sequence[float], capacity: float
) -> float:
    most = 0.0
    for item in items[place:]:
        if weights[item] > capacity:
            return most + values[item] * capacity / weights[item]
        capacity -= weights[item]
        most += values[item]
    return most
